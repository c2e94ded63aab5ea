"""Hardware-software co-design around one configurable FPGA accelerator."""
