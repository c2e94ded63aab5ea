"""The accelerator as synthesizable hardware, written in Amaranth."""
