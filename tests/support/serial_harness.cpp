// Drives an accelerator that is reached by bytes: some go in, some come out, cycles pass.

#include <cstdint>

#include "Vbench.h"
#include "verilated.h"

namespace {

class Board {
 public:
  Board() : bench_(&context_) {
    bench_.rst = 1;
    step();
    step();
    bench_.rst = 0;
  }

  ~Board() { bench_.final(); }

  // Runs for some cycles; returns how many bytes came, at most as many as there is room for.
  std::int64_t exchange(const std::uint8_t* input, std::int64_t size, std::uint8_t* output,
                        std::int64_t room, std::int64_t cycles) {
    std::int64_t taken = 0;
    std::int64_t came = 0;
    for (std::int64_t cycle = 0; taken < size || cycle < cycles; ++cycle) {
      bench_.received_valid = taken < size;
      bench_.received_payload = taken < size ? input[taken] : 0;
      bench_.sent_ready = came < room;
      bench_.clk = 0;
      bench_.eval();
      if (bench_.received_valid && bench_.received_ready) ++taken;
      if (bench_.sent_valid && bench_.sent_ready) output[came++] = bench_.sent_payload;
      bench_.clk = 1;
      bench_.eval();
      if (taken == size && came == room) break;
    }
    return came;
  }

 private:
  void step() {
    bench_.clk = 0;
    bench_.eval();
    bench_.clk = 1;
    bench_.eval();
  }

  VerilatedContext context_;
  Vbench bench_;
};

}  // namespace

extern "C" {

void* board_make() { return new Board; }

void board_free(void* board) { delete static_cast<Board*>(board); }

std::int64_t board_exchange(void* board, const std::uint8_t* input, std::int64_t size,
                            std::uint8_t* output, std::int64_t room, std::int64_t cycles) {
  return static_cast<Board*>(board)->exchange(input, size, output, room, cycles);
}
}
