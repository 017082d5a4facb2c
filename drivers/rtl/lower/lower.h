// From a command of the contract to packets. Lowering happens in `submit`, on the caller's thread, and touches nothing
// but its own list: what the NPU cannot do is found before anything has happened.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "drivers/rtl/device/device.h"
#include "drivers/rtl/packet/packet.h"
#include "npu/command.h"
#include "support/program/program.h"

namespace rtl {

// Thrown: the host computes the command another way.
struct Unsupported {
  std::string text;
};
// Thrown: the command breaks a rule.
struct Refused {
  npu_status status;
  std::string text;
};

struct Space {
  int rank = 0;
  int64_t size[NPU_MAX_RANK] = {};
  int64_t points() const;
};

// A source or result over a space: memory of a hardware type, or one value for all points.
struct View {
  bool immediate = false;
  uint32_t bits = 0;
  uint64_t addr = 0;
  uint32_t type = npu_hw::TYPE_F32;
  int64_t stride[NPU_MAX_RANK] = {};  // bytes
};

View immediate(uint32_t bits);
View number(float value);
// An error that a CHECK packet may find: the text is made from the index as it was given.
struct Check {
  size_t packet;
  npu_status status;
  Space space;       // of the packet, row-major
  View index, high;  // words
  int64_t size;
};

int hardware_type(int dtype);  // of a storage type of the contract; -1: the NPU does not have it

struct Direct;  // program.cpp: a row of its tables

class Lowering {
 public:
  // Dry: `supports` asks about types only; every size is taken for 1, and addresses need not exist.
  Lowering(npu_device* device, const npu_command& command, const npu::Program* program, bool dry);
  void run();
  std::vector<Packet> packets;
  std::vector<Check> checks;

 private:
  // ---- emit.cpp: packets ----
  void emit(uint32_t opcode, uint32_t op, const Space& space, const View& result, const View& a,
            const View& b = immediate(0), const View& c = immediate(0));
  void vector(uint32_t op, const View& result, const View& a, const View& b = immediate(0),
              const View& c = immediate(0)) {
    emit(npu_hw::OP_VECTOR, op, space_, result, a, b, c);
  }
  uint64_t take_scratch(uint64_t bytes);
  View contiguous(const Space& space, uint32_t type);  // scratch, row-major
  // Scratch over the dimensions in which one of the views moves; stride 0 elsewhere.
  Space varying(std::initializer_list<const View*> views) const;
  View contiguous_over(const Space& space, uint32_t type);
  View materialize(const View& view);     // all of space_, as f32 or i32 lie in a lane
  void settle(View* sources, int count);  // a packet has room for one immediate
  // An operand of the command over a space; `stride` is in elements. Throws if it leaves its allocation. An i64 has two
  // words of i32; where accesses are masked or computed, addresses are not looked at here.
  View operand(uint32_t index, const Space& space, const int64_t* stride, int word = 0, bool checked = true);
  View operand(uint32_t index) { return operand(index, space_, command_.operands[index].stride); }

  // ---- copy.cpp ----
  void lower_copy();

  // ---- program.cpp: MAP, REDUCE, and epilogues, whose `acc` is a view ----
  struct Epilogue;
  void lower_program(const View* acc, const Epilogue* begun = nullptr);
  struct Range {
    int64_t least = INT32_MIN, most = INT32_MAX;
    bool fits() const { return least >= INT32_MIN && most <= INT32_MAX; }
  };
  // An i64 is one lane where its range allows it; else it is wide and has its high word in `high`.
  struct Value {
    View view;
    int dtype = NPU_DTYPE_NONE;
    Range range = {};
    bool wide = false;
    View high = {};
  };
  Value convert(const Value& value, int dtype);
  Value via(const Value& value, int storage, int dtype);
  Value scalar(npu_scalar bits, int dtype);
  Value compute(const npu_instr& in);
  Value compute(const npu_instr& in, const Value* v);  // of given arguments
  Value compute_float(const npu_instr& in, const Value* v);
  Value compute_integer(const npu_instr& in, const Value* v);
  Value apply(int dtype, uint32_t op, const View& a, const View& b = immediate(0), const View& c = immediate(0));
  Value apply_direct(const Direct& row, const Value* v);
  Value invert(const Value& value);  // of a truth value
  Value select(const Value& which, const Value& yes, const Value& no);
  void store(uint32_t operand, const Value& value, bool only);
  Value load_behind_stores(const npu_instr& in);
  void store_all();
  struct Store {
    const npu_instr* in;
    Space space;
  };
  std::vector<Store> stores_;

  // ---- integer.cpp: i64, and what i32 shares with it ----
  static Range range_of(const Value& value);
  Value integer(int64_t value, int dtype = NPU_I64);
  View high_word(const Value& value);
  Value add(const Value& a, const Value& b);
  Value subtract(const Value& a, const Value& b);
  Value multiply(const Value& a, const Value& b);
  Value less(const Value& a, const Value& b);
  Value equal(const Value& a, const Value& b);
  Value divide(int op, const Value& a, const Value& b);  // DIV, FLOORDIV, MOD, FMOD
  Value shift(int op, const Value& a, const Value& b);
  Value words(int dtype, uint32_t op, const Value& a, const Value& b);
  Value philox(const Value& seed, const Value& offset, const Value& subsequence, uint32_t word);
  Value compute_long(const npu_instr& in, const Value* v);
  Value convert_long(const Value& value, int dtype);

  // ---- address.cpp: coordinates, computed addresses, masks ----
  Value coordinate(int dimension, int dtype);
  Value check_index(const npu_instr& in, const Value& index, const Value& size);
  void check(const Value& bad, npu_status status, const Value& index, int64_t size);
  Value load(const npu_instr& in);
  // Without an access outside the allocation or the operand's limit, or with packets that find out.
  void guard(const npu_instr& in, const Value& offset, const Value& mask);
  void store_at(const npu_instr& in, const Value& value);
  Value mask_of(const npu_instr& in);
  std::array<View, NPU_MAX_RANK> coordinates_;
  std::array<bool, NPU_MAX_RANK> has_coordinate_ = {};

  // ---- functions.cpp ----
  Value compute_function(const npu_instr& in, const Value* v);
  Value expand(const npu::Program& sequence, const Value* arguments);  // one instruction after the other

  // ---- reduce.cpp: over the last `inner_rank` dimensions ----
  Value fold(int kind, const Value& given);
  Value sum_long(const Value& given);
  Value extreme_long(int kind, const Value& given);
  View scan_words(uint32_t op, uint32_t identity, const View& given);
  Value scan(int kind, const Value& given);
  Value fold_few(uint32_t op, uint32_t identity, const Value& given, int64_t inner);
  Value masked(int kind, const Value& given, const Value& mask);
  std::array<Value, NPU_MAX_TUPLE> arg_fold(int kind, const Value& given, const Value& index, const Value& mask);
  std::array<Value, NPU_MAX_TUPLE> welford(const Value& given);

  // ---- matmul.cpp ----
  void lower_matmul();
  uint32_t product_type(uint32_t flags) const;
  View matrix(uint32_t index, const Space& space, uint32_t type);
  // `bias` counts where FLAG_BIAS is set.
  void multiply(const Space& batches, int64_t m, int64_t n, int64_t k, const View& result, const View& a, const View& b,
                uint32_t flags, const View& bias);

  // ---- epilogue.cpp ----
  struct Epilogue {
    uint32_t flags = 0;          // of the packet
    View bias;                   // where they have FLAG_BIAS
    std::vector<uint16_t> done;  // instructions that the packet runs: their values are what it writes
    int store = -1;              // the instruction that stores these, if the packet may write them to that operand
    int result = -1;             // this operand
    bool whole = false;          // nothing else is left of the command
  };
  Epilogue packet_epilogue(int acc_dtype, int m, int n);
  bool bias_view(const npu_instr& load, int m, int n, View* out);
  bool is_touched(uint32_t operand) const;

  // ---- conv.cpp ----
  void lower_conv();
  void convolve(const View& result, int spatial, uint32_t flags, const View& bias);
  View image(uint64_t bytes, uint32_t type, bool gaps);
  bool window(int64_t tap, int64_t channels, Space* space, View* input, View* output);
  bool has_gaps(int64_t channels, int64_t places);
  void unfold(uint32_t index, int64_t channels, const View& to, int64_t tap_stride);

  npu_device* const device_;
  npu_command command_;
  std::vector<npu_operand> operands_;
  const npu::Program* const program_;
  const bool dry_;
  Space space_;
  uint64_t scratch_used_ = 0;
  std::vector<Value> values_;
  std::vector<std::array<Value, NPU_MAX_TUPLE>> members_;  // of folds, by instruction
  const View* acc_ = nullptr;
  // The last computation, which may as well write straight to where its result is stored.
  struct {
    size_t first = 0, end = 0;  // its packets
    uint32_t op = 0;
    View result, a, b, c;
  } last_;
};

}  // namespace rtl
