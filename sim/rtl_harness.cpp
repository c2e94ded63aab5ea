// Runs a program on the Verilated test bench: the clock, the bytes of DRAM, and what is left behind.
//
// Compiled once per configuration, with the files that Verilator wrote; called through the C
// functions at the end. TILEWRIGHT_ENGINES, TILEWRIGHT_PORT_BYTES and contents.h come from the build,
// see rtl_build.py.

#include <cstdint>
#include <cstring>
#include <memory>

#include "Vbench.h"
#include "contents.h"
#include "verilated.h"
#ifdef TILEWRIGHT_TRACE
#include "verilated_vcd_c.h"
#endif

namespace {

constexpr int kEngines = TILEWRIGHT_ENGINES;
constexpr std::uint64_t kPortBytes = TILEWRIGHT_PORT_BYTES;
// Cycles without an event and without an active engine after which nothing will come any more:
// longer than any latency of the memory.
constexpr std::uint64_t kStandstill = 1 << 15;

// Results of a run, as rtl.py reads them.
enum Status : std::int32_t { kDone = 0, kStandsStill = 1, kBadAddress = 2, kTimeOut = 3 };

// Where the k-th event of an engine is noted; the caller owns the arrays.
struct Events {
  std::int64_t* cycles[kEngines];
  std::int64_t capacity;
  std::int64_t count[kEngines];

  // Notes the engines of a mask; false where there are more events than instructions.
  bool note(unsigned mask, std::int64_t cycle) {
    for (int engine = 0; engine < kEngines; ++engine) {
      if (mask >> engine & 1) {
        if (count[engine] == capacity) return false;
        cycles[engine][count[engine]++] = cycle;
      }
    }
    return true;
  }
};

struct Dram {
  std::uint8_t* bytes;
  std::uint64_t size;

  // Reads a beat; bytes beyond the end are zero, as a burst may reach beyond its row.
  void read(std::uint64_t address, std::uint8_t* beat) const {
    std::memset(beat, 0, kPortBytes);
    if (address < size) {
      const std::uint64_t rest = size - address;
      std::memcpy(beat, bytes + address, rest < kPortBytes ? rest : kPortBytes);
    }
  }

  // Writes the enabled bytes of a beat; false where one lies beyond the end.
  bool write(std::uint64_t address, const std::uint8_t* beat, std::uint64_t enable) {
    for (std::uint64_t i = 0; i < kPortBytes; ++i) {
      if (enable >> i & 1) {
        if (address + i >= size) return false;
        bytes[address + i] = beat[i];
      }
    }
    return true;
  }
};

class Machine {
 public:
  explicit Machine(const char* trace_path) : bench_(&context_) {
#ifdef TILEWRIGHT_TRACE
    context_.traceEverOn(true);
    bench_.trace(&trace_, 99);
    trace_.open(trace_path);
#else
    (void)trace_path;
#endif
    bench_.start = 0;
  }

  ~Machine() {
    bench_.final();
#ifdef TILEWRIGHT_TRACE
    trace_.close();
#endif
  }

  Status run(Dram dram, std::uint32_t address, std::uint32_t count, std::uint64_t cycle_limit,
             Events* dispatched, Events* started, Events* finished, std::uint64_t* cycles) {
    bench_.address = address;
    bench_.count = count;
    bench_.start = 1;
    settle();
    tick();
    bench_.start = 0;
    std::uint8_t fetched[kPortBytes] = {};
    std::uint8_t loaded[kPortBytes] = {};
    std::uint64_t last_event = 0;
    for (std::uint64_t cycle = 0; cycle < cycle_limit; ++cycle) {
      std::memcpy(&bench_.fetch_data, fetched, kPortBytes);
      std::memcpy(&bench_.load_data, loaded, kPortBytes);
      settle();
      if (bench_.dispatched | bench_.started | bench_.finished) {
        last_event = cycle;
        if (!dispatched->note(bench_.dispatched, cycle)) return kBadAddress;
        if (!started->note(bench_.started, cycle)) return kBadAddress;
        if (!finished->note(bench_.finished, cycle)) return kBadAddress;
      } else if (bench_.active) {
        last_event = cycle;
      }
      if (bench_.done) {
        *cycles = bench_.cycle;
        tick();
        return kDone;
      }
      if (cycle - last_event > kStandstill) {
        *cycles = cycle;
        return kStandsStill;
      }
      if (bench_.fetch_enable) dram.read(bench_.fetch_address, fetched);
      if (bench_.load_enable) dram.read(bench_.load_address, loaded);
      if (bench_.store_enable) {
        std::uint8_t beat[kPortBytes];
        std::memcpy(beat, &bench_.store_data, kPortBytes);
        if (!dram.write(bench_.store_address, beat, bench_.store_enable)) return kBadAddress;
      }
      tick();
    }
    *cycles = cycle_limit;
    return kTimeOut;
  }

  void count(std::uint32_t* counts) const { tilewright_count(bench_, counts); }

  void copy(int block, std::uint32_t entries, std::uint32_t entry_bytes, std::uint8_t* bytes) {
    for (std::uint32_t entry = 0; entry < entries; ++entry, bytes += entry_bytes) {
      tilewright_copy(bench_, block, entry, bytes);
    }
  }

 private:
  // Lets the outputs of the current cycle follow its inputs.
  void settle() {
    bench_.clk = 0;
    bench_.eval();
    dump();
  }

  // Moves on to the next cycle.
  void tick() {
    bench_.clk = 1;
    bench_.eval();
    dump();
  }

  void dump() {
#ifdef TILEWRIGHT_TRACE
    trace_.dump(context_.time());
    context_.timeInc(1);
#endif
  }

  VerilatedContext context_;
  Vbench bench_;
#ifdef TILEWRIGHT_TRACE
  VerilatedVcdC trace_;
#endif
};

}  // namespace

extern "C" {

void* tilewright_make(const char* trace_path) { return new Machine(trace_path); }

void tilewright_free(void* machine) { delete static_cast<Machine*>(machine); }

// `events` holds the arrays of dispatch, start and finish, engine by engine, each `capacity` long.
std::int32_t tilewright_run(void* machine, std::uint8_t* dram, std::uint64_t dram_bytes,
                            std::uint32_t address, std::uint32_t count, std::uint64_t cycle_limit,
                            std::int64_t* events, std::int64_t capacity, std::uint64_t* cycles) {
  Events kinds[3] = {};
  for (Events& kind : kinds) {
    kind.capacity = capacity;
    for (std::int64_t*& array : kind.cycles) {
      array = events;
      events += capacity;
    }
  }
  return static_cast<Machine*>(machine)->run(Dram{dram, dram_bytes}, address, count, cycle_limit,
                                             &kinds[0], &kinds[1], &kinds[2], cycles);
}

// Copies the counters, engine by engine.
void tilewright_counts(void* machine, std::uint32_t* counts) {
  static_cast<Machine*>(machine)->count(counts);
}

// Copies the entries of a block memory, `entry_bytes` apart.
void tilewright_block(void* machine, std::int32_t block, std::uint32_t entries,
                      std::uint32_t entry_bytes, std::uint8_t* bytes) {
  static_cast<Machine*>(machine)->copy(block, entries, entry_bytes, bytes);
}
}
