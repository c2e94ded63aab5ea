// Drives the test bench of a board: accesses to its registers, and cycles in between.
//
// TILEWRIGHT_PORT_BYTES comes from the build, see board_hardware.py.

#include <cstdint>
#include <cstring>

#include "Vbench.h"
#include "verilated.h"

namespace {

constexpr std::uint64_t kPortBytes = TILEWRIGHT_PORT_BYTES;
// Cycles after which an access to a register has no answer.
constexpr int kAccessLimit = 1000;

class Board {
 public:
  Board(std::uint8_t* memory) : bench_(&context_), memory_(memory) {
    bench_.rst = 1;
    step();
    step();
    bench_.rst = 0;
  }

  ~Board() { bench_.final(); }

  // Makes an access; false where none answers.
  bool access(bool write, std::uint32_t address, std::uint32_t data, std::uint32_t* answer) {
    bench_.host_valid = 1;
    bench_.host_write = write;
    bench_.host_address = address;
    bench_.host_data = data;
    for (int cycle = 0; cycle < kAccessLimit; ++cycle) {
      settle();
      const bool done = bench_.host_done;
      *answer = bench_.host_answer;
      finish();
      if (done) {
        bench_.host_valid = 0;
        step();
        return true;
      }
    }
    bench_.host_valid = 0;
    return false;
  }

  // Runs until the interrupt is raised, or for some cycles; says whether it is raised.
  bool run(std::uint64_t cycles) {
    for (std::uint64_t cycle = 0; cycle < cycles; ++cycle) {
      settle();
      if (bench_.interrupt_raised) return true;
      finish();
    }
    settle();
    return bench_.interrupt_raised;
  }

 private:
  void settle() {
    std::memcpy(&bench_.fetch_data, fetched_, kPortBytes);
    std::memcpy(&bench_.load_data, loaded_, kPortBytes);
    bench_.clk = 0;
    bench_.eval();
  }

  // Lets memory follow the outputs of the cycle, and moves on to the next one.
  void finish() {
    if (bench_.fetch_enable) std::memcpy(fetched_, memory_ + bench_.fetch_address, kPortBytes);
    if (bench_.load_enable) std::memcpy(loaded_, memory_ + bench_.load_address, kPortBytes);
    if (bench_.store_enable) {
      std::uint8_t beat[kPortBytes];
      std::memcpy(beat, &bench_.store_data, kPortBytes);
      for (std::uint64_t i = 0; i < kPortBytes; ++i) {
        if (bench_.store_enable >> i & 1) memory_[bench_.store_address + i] = beat[i];
      }
    }
    bench_.clk = 1;
    bench_.eval();
  }

  void step() {
    settle();
    finish();
  }

  VerilatedContext context_;
  Vbench bench_;
  std::uint8_t* memory_;
  std::uint8_t fetched_[kPortBytes] = {};
  std::uint8_t loaded_[kPortBytes] = {};
};

}  // namespace

extern "C" {

// `memory` stays the caller's; its last beat is followed by as many bytes as a beat has.
void* board_make(std::uint8_t* memory) { return new Board(memory); }

void board_free(void* board) { delete static_cast<Board*>(board); }

std::int32_t board_access(void* board, std::int32_t write, std::uint32_t address,
                          std::uint32_t data, std::uint32_t* answer) {
  return static_cast<Board*>(board)->access(write, address, data, answer);
}

std::int32_t board_run(void* board, std::uint64_t cycles) {
  return static_cast<Board*>(board)->run(cycles);
}
}
