// The parts of the reference executor: access to operands, and the interpreter of programs.
#pragma once
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/program/program.h"
#include "support/reference/reference.h"
#include "support/reference/value.h"

namespace npu {

// Ends a command; run_reference turns it into a status.
struct Failure {
  npu_status status;
  std::string text;
};

// The operands of one command. Offsets are in elements from the operand's address.
class Memory {
 public:
  Memory(const npu_command& command, const Translate& translate);

  // Says which offsets will be touched: all points of `size` (rank dimensions), or [0, count). Only a shortcut: it
  // lets accesses there skip the translation; others are translated one by one.
  void expect_space(uint32_t operand, const int64_t* size, int rank, bool write);
  void expect_range(uint32_t operand, int64_t low, int64_t high, bool write);

  Value load(uint32_t operand, int64_t offset, int to) {
    const Slot& slot = slots_[operand];
    const void* at = slot.immediate ? slot.bits : place(slot, slot.readable, operand, offset, false);
    return load_value(at, slot.dtype, to);
  }
  void store(uint32_t operand, int64_t offset, Value value, int from) {
    const Slot& slot = slots_[operand];
    store_value(place(slot, slot.writable, operand, offset, true), slot.dtype, value, from);
  }
  // Between operands of one storage type, bits as they are.
  void copy(uint32_t to, int64_t to_offset, uint32_t from, int64_t from_offset) {
    const Slot &source = slots_[from], &target = slots_[to];
    const void* at = source.immediate ? source.bits : place(source, source.readable, from, from_offset, false);
    std::memcpy(place(target, target.writable, to, to_offset, true), at, static_cast<size_t>(target.size));
  }
  int dtype(uint32_t operand) const { return slots_[operand].dtype; }
  const npu_operand& operand(uint32_t index) const { return command_.operands[index]; }

 private:
  struct Window {
    unsigned char* base = nullptr;  // of offset `low`
    int64_t low = 0;
    uint64_t count = 0;
  };
  struct Slot {
    int dtype = 0, size = 0;
    bool immediate = false;
    unsigned char bits[8] = {};
    Window readable, writable;
  };
  void* place(const Slot& slot, const Window& window, uint32_t operand, int64_t offset, bool write) {
    const uint64_t index = static_cast<uint64_t>(offset) - static_cast<uint64_t>(window.low);
    if (index < window.count) return window.base + index * static_cast<uint64_t>(slot.size);
    return translate_one(slot, operand, offset, write);
  }
  void* translate_one(const Slot& slot, uint32_t operand, int64_t offset, bool write) const;

  const npu_command& command_;
  const Translate& translate_;
  std::vector<Slot> slots_;
};

// Runs the program of a command.
class Machine {
 public:
  Machine(const npu_command& command, const npu_program_desc& program, Memory& memory);

  // MAP, SCATTER, REDUCE, SCAN: the whole index space; the last `inner` dimensions make a row.
  void run(int inner);
  // Epilogues: the program at one point.
  void run_point(const int64_t* point, Value acc);

 private:
  struct Fold {  // one fold or scan instruction
    uint16_t id = 0;
    int segment = 0, kind = 0, members = 1, combine = 0;
    int dtype[NPU_MAX_TUPLE] = {};
    npu_instr op{};              // the two-argument instruction of a simple fold
    Value lane[16] = {};         // simple folds
    Value state[NPU_MAX_TUPLE];  // scans and tuples
    bool any = false;
    std::vector<Value> history;                  // scans: the running value at every element
    std::vector<std::pair<int64_t, Value>> row;  // welford of plain values: element and value
    std::vector<std::pair<uint16_t, int>> gets;
  };
  struct Segment {
    int kind = 0;
    std::vector<uint16_t> body;  // without what is the same everywhere
    std::vector<Fold> folds;
  };

  int type(uint16_t id) const { return program_.instrs[id].dtype; }
  bool step(int first, int last);  // false after the last point of these dimensions; then all are 0 again
  void run_row(int first);
  void run_body(const Segment& segment, int64_t element);
  void execute(uint16_t id, int64_t element);
  void store_at(const npu_instr& in);
  Value check_index(const npu_instr& in) const;
  int64_t address(const npu_instr& in, uint16_t offset) const;
  void begin(Fold& fold, int64_t elements);
  void accumulate(Fold& fold, const npu_instr& in, int64_t element);
  void merge(Fold& fold, const Value* tuple);
  void welford(Fold& fold, const Value* tuple);
  bool takes_row(const Fold& fold) const;
  void combine(Fold& fold, const Value* right);
  void finish(Fold& fold);
  void publish(const Fold& fold, const Value* tuple);

  const npu_command& command_;
  const npu_program_desc& program_;
  Memory& memory_;
  std::vector<Value> values_;
  std::vector<Segment> segments_;                // EACH and ROW, in order
  std::vector<Segment> combines_;                // COMBINE, by number
  std::vector<std::pair<int, int>> fold_place_;  // of each fold or scan instruction: segment, position
  std::vector<int64_t> offsets_;                 // of each operand at the current point
  int64_t point_[NPU_MAX_RANK] = {};
  Value acc_{};
  Value combine_args_[2 * NPU_MAX_TUPLE] = {};
  Value combine_results_[NPU_MAX_TUPLE] = {};
};

void run_matmul(const npu_command& command, const npu_program_desc* program, Memory& memory);
void run_conv(const npu_command& command, const npu_program_desc* program, Memory& memory);
void run_sort(const npu_command& command, Memory& memory);
void run_copy(const npu_command& command, Memory& memory);

// Where a product's result goes: through the epilogue, or to operand 2.
class ResultSink {
 public:
  ResultSink(const npu_command& command, const npu_program_desc* program, Memory& memory, int acc_dtype);
  void put(const int64_t* point, Value acc);

 private:
  const npu_command& command_;
  Memory& memory_;
  int acc_dtype_;
  std::optional<Machine> machine_;
};

inline Value value_of(float v) {
  Value out{};
  out.f32 = v;
  return out;
}
inline Value value_of(double v) {
  Value out{};
  out.f64 = v;
  return out;
}
inline Value value_of(int64_t v) {
  Value out{};
  out.i = v;
  return out;
}
inline Value value_of(int32_t v) {
  return value_of(static_cast<int64_t>(v));
}

template <typename T>
T get_value(Value v) {
  if constexpr (std::is_same_v<T, float>)
    return v.f32;
  else if constexpr (std::is_same_v<T, double>)
    return v.f64;
  else
    return static_cast<T>(v.i);
}

// Steps a point through an index space in row-major order; false after the last, when all coordinates are 0 again.
inline bool next_point(int64_t* point, const int64_t* size, int rank) {
  for (int d = rank - 1; d >= 0; --d) {
    if (++point[d] < size[d]) return true;
    point[d] = 0;
  }
  return false;
}

inline int64_t offset_of(const int64_t* point, const int64_t* stride, int rank) {
  uint64_t offset = 0;  // unsigned: a wild stride wraps and is then refused as an address
  for (int d = 0; d < rank; ++d) offset += static_cast<uint64_t>(point[d]) * static_cast<uint64_t>(stride[d]);
  return static_cast<int64_t>(offset);
}

inline int64_t points(const int64_t* size, int rank) {
  int64_t n = 1;
  for (int d = 0; d < rank; ++d) n *= size[d];
  return n;
}

}  // namespace npu
