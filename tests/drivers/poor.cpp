// A chip that has less: a driver (the C model, unless driver=[...] says another) behind a table that refuses. Options
// are words; what is not refused runs as it does there.
//   commands=COPY+MAP+MATMUL   only these kinds
//   combine=0                  SCATTER stores, and does not add, multiply or compare
//   epilogue=0                 MATMUL and CONV without a program only
//   segments=1                 REDUCE and SCAN with one each segment at most
//   folds=sum+max              only these folds and scans; a fold count of more than one per segment: manyfolds=0
//   types=f32+i64+bool         storage types of all operands
//   products=i8                storage types of the inputs of MATMUL and CONV
//   compute=f32+i32+bool       compute types of programs; but for an i64 that is only an address
//   lacks=exp+philox           instructions
//   layout=rows                inputs of products are row-major: the last stride is 1, the others descend
//   dense=1                    operands of MAP, COPY and REDUCE are dense row-major, or broadcast whole dimensions
//   rank=4 inner=1 operands=8 instructions=32   at most
//   grain=16                   addresses are multiples of so many bytes
#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "support/loading/driver_library.h"
#include "support/loading/spec.h"
#include "support/program/op_info.h"
#include "support/program/operand_shape.h"
#include "support/program/program.h"

namespace {

using npu::Program;

const npu_driver* g_inner = nullptr;
thread_local std::string g_problem;  // of our own; empty: ask the driver

using Names = std::set<std::string>;

struct Limits {
  Names commands, folds, types, products, compute, lacks;
  bool epilogue = true, combine = true, many_folds = true, rows = false, dense = false;
  int64_t segments = 100, rank = NPU_MAX_RANK, inner = NPU_MAX_RANK, operands = NPU_MAX_OPERANDS,
          instructions = NPU_MAX_INSTRS, grain = 1;
};

Names names(const std::string& value) {
  Names out;
  for (size_t from = 0; from <= value.size();) {
    const size_t end = std::min(value.find('+', from), value.size());
    out.insert(value.substr(from, end - from));
    from = end + 1;
  }
  return out;
}

std::map<npu_instance*, std::string> g_opened;  // the driver's instance: our options
struct State {
  std::mutex mutex;
  std::map<npu_instance*, Limits> instances;
  std::unordered_map<npu_device*, Limits> devices;
  std::unordered_map<npu_stream*, npu_device*> streams;
  std::unordered_map<const npu_program*, Program> programs;
} g_state;

Limits limits_of(npu_device* device) {
  std::lock_guard lock(g_state.mutex);
  return g_state.devices[device];
}

Limits read_limits(const std::string& options, std::string* driver) {
  Limits limits;
  std::map<std::string, Names*> lists = {{"commands", &limits.commands}, {"folds", &limits.folds},
                                         {"types", &limits.types},       {"products", &limits.products},
                                         {"compute", &limits.compute},   {"lacks", &limits.lacks}};
  std::map<std::string, int64_t*> numbers = {{"segments", &limits.segments}, {"rank", &limits.rank},
                                             {"inner", &limits.inner},       {"operands", &limits.operands},
                                             {"grain", &limits.grain},       {"instructions", &limits.instructions}};
  for (const auto& [key, value] : npu::parse_options(options)) {
    if (key == "driver")
      *driver = value;
    else if (lists.count(key))
      *lists[key] = names(value);
    else if (numbers.count(key))
      *numbers[key] = std::stoll(value);
    else if (key == "epilogue")
      limits.epilogue = value != "0";
    else if (key == "combine")
      limits.combine = value != "0";
    else if (key == "manyfolds")
      limits.many_folds = value != "0";
    else if (key == "layout")
      limits.rows = value == "rows";
    else if (key == "dense")
      limits.dense = value != "0";
    else
      throw std::invalid_argument("poor: did not expect " + key);
  }
  return limits;
}

bool among(const Names& names, const std::string& name) {
  return names.empty() || names.count(name);
}

// Why the limits refuse it; empty: they do not.
std::string refuses(const Limits& limits, const npu_program_desc& program) {
  if (program.instr_count > limits.instructions) return "program of " + std::to_string(program.instr_count);
  int64_t each = 0, folds = 0;
  for (uint32_t k = 0; k < program.instr_count; ++k) {
    const npu_instr& in = program.instrs[k];
    if (in.op == NPU_OP_SEGMENT) {
      each += in.imm == NPU_SEGMENT_EACH;
      folds = 0;
    }
    if (in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN) {
      if (!among(limits.folds, npu::fold_name(npu::fold_kind(in)))) return npu::fold_name(npu::fold_kind(in));
      if (++folds > 1 && !limits.many_folds) return "several folds in a segment";
    }
    if (in.op == NPU_OP_STORE_AT && in.flags != NPU_STORE_SET && !limits.combine) return "a store_at that combines";
    if (limits.lacks.count(npu::op_name(in.op))) return npu::op_name(in.op);
    if (in.dtype != NPU_DTYPE_NONE && !among(limits.compute, npu::dtype_name(in.dtype)) && !npu::is_address(program, k))
      return npu::dtype_name(in.dtype);
  }
  // A SCAN needs a second segment to store in.
  const int64_t most = limits.segments;
  if (each > most + 1) return std::to_string(each) + " segments";
  return {};
}

std::string refuses(const Limits& limits, const npu_command& command, const Program* program) {
  const bool product = command.kind == NPU_MATMUL || command.kind == NPU_CONV;
  if (!among(limits.commands, npu::command_name(command.kind))) return npu::command_name(command.kind);
  if (command.rank > limits.rank) return "rank " + std::to_string(command.rank);
  if (command.inner_rank > limits.inner) return "inner rank " + std::to_string(command.inner_rank);
  if (command.operand_count > limits.operands) return std::to_string(command.operand_count) + " operands";
  if (product && program && !limits.epilogue) return "an epilogue";
  for (uint32_t k = 0; k < command.operand_count; ++k) {
    const std::string type = npu::dtype_name(command.operands[k].dtype);
    if (!among(limits.types, type)) return type;
    if (product && k < 2 && !among(limits.products, type)) return "products of " + type;
  }
  if (command.kind == NPU_REDUCE && program) {
    int64_t each = 0;
    for (const npu_instr& in : program->instrs) each += in.op == NPU_OP_SEGMENT && in.imm == NPU_SEGMENT_EACH;
    if (each > limits.segments) return std::to_string(each) + " segments";
  }
  return {};
}

// Row-major without gaps, but for whole dimensions of stride 0 if `broadcast`.
bool is_dense(const int64_t* size, const int64_t* stride, int rank, bool broadcast) {
  int64_t step = 1;
  for (int d = rank - 1; d >= 0; --d) {
    if (size[d] == 1 || (broadcast && stride[d] == 0)) continue;
    if (stride[d] != step) return false;
    step *= size[d];
  }
  return true;
}

// What `submit` sees and `supports` does not.
std::string refuses_layout(const Limits& limits, const npu_command& command) {
  const bool product = command.kind == NPU_MATMUL || command.kind == NPU_CONV;
  for (uint32_t k = 0; k < command.operand_count; ++k) {
    const npu_operand& operand = command.operands[k];
    if (operand.flags & NPU_OPERAND_IMMEDIATE) continue;
    if (operand.addr % static_cast<uint64_t>(limits.grain)) return "an address that is no multiple of the grain";
    int64_t size[NPU_MAX_RANK];
    npu::operand_shape(command, k, size);
    if (limits.dense && !product && command.kind != NPU_SORT && !is_dense(size, operand.stride, command.rank, true))
      return "strides of operand " + std::to_string(k);
    if (limits.rows && product && k < 2 && !is_dense(size, operand.stride, command.rank, k == 0 || command.rank > 2))
      return "strides of operand " + std::to_string(k);
  }
  return {};
}

npu_status unsupported(const std::string& what) {
  g_problem = "expected what this chip has, got " + what;
  return NPU_UNSUPPORTED;
}

const Program* program_of(const npu_command& command) {
  std::lock_guard lock(g_state.mutex);
  const auto found = g_state.programs.find(command.program);
  return found == g_state.programs.end() ? nullptr : &found->second;
}

npu_status open(const char* options, npu_instance** out) {
  std::string driver = "cmodel";
  Limits limits;
  try {
    limits = read_limits(options, &driver);
  } catch (const std::exception& error) {
    g_problem = error.what();
    return NPU_ERROR_INVALID;
  }
  const size_t colon = std::min(driver.find(':'), driver.size());
  const npu_status status = g_inner->open(driver.substr(std::min(colon + 1, driver.size())).c_str(), out);
  std::lock_guard lock(g_state.mutex);
  if (status == NPU_OK) g_state.instances[*out] = limits;
  return status;
}

npu_status device_open(npu_instance* instance, uint32_t index, npu_device** out) {
  const npu_status status = g_inner->device_open(instance, index, out);
  std::lock_guard lock(g_state.mutex);
  if (status == NPU_OK) g_state.devices[*out] = g_state.instances[instance];
  return status;
}

npu_status device_properties(npu_device* device, npu_properties* out) {
  const npu_status status = g_inner->device_properties(device, out);
  const Limits limits = limits_of(device);
  for (int kind = 0; status == NPU_OK && kind < NPU_COMMAND_COUNT; ++kind)
    if (!among(limits.commands, npu::command_name(kind))) out->commands &= ~(1u << kind);
  return status;
}

// A chip without bytes has whole words: the one in which an allocation ends belongs to it.
npu_status memory_alloc(npu_device* device, uint64_t size, npu_addr* out) {
  const uint64_t word = limits_of(device).types.empty() || size > UINT64_MAX - 8 ? 1 : 8;
  return g_inner->memory_alloc(device, size + (word - size % word) % word, out);
}

npu_status stream_create(npu_device* device, int32_t priority, npu_stream** out) {
  const npu_status status = g_inner->stream_create(device, priority, out);
  std::lock_guard lock(g_state.mutex);
  if (status == NPU_OK) g_state.streams[*out] = device;
  return status;
}

npu_status program_create(npu_device* device, const npu_program_desc* desc, npu_program** out) {
  g_problem.clear();
  const npu_status status = g_inner->program_create(device, desc, out);
  if (status != NPU_OK) return status;
  if (const std::string why = refuses(limits_of(device), *desc); !why.empty()) {
    g_inner->program_destroy(*out);
    return unsupported(why);
  }
  std::lock_guard lock(g_state.mutex);
  g_state.programs[*out] = Program::copy_of(*desc);
  return status;
}

void program_destroy(npu_program* program) {
  {
    std::lock_guard lock(g_state.mutex);
    g_state.programs.erase(program);
  }
  g_inner->program_destroy(program);
}

npu_status supports(npu_device* device, const npu_command* command) {
  g_problem.clear();
  const npu_status status = g_inner->supports(device, command);
  if (status != NPU_OK) return status;
  const std::string why = refuses(limits_of(device), *command, program_of(*command));
  return why.empty() ? NPU_OK : unsupported(why);
}

npu_status submit(npu_stream* stream, const npu_command* command) {
  g_problem.clear();
  npu_device* device = nullptr;
  {
    std::lock_guard lock(g_state.mutex);
    device = g_state.streams[stream];
  }
  if (!command || g_inner->supports(device, command) != NPU_OK) return g_inner->submit(stream, command);
  const Limits limits = limits_of(device);
  std::string why = refuses(limits, *command, program_of(*command));
  if (why.empty()) why = refuses_layout(limits, *command);
  return why.empty() ? g_inner->submit(stream, command) : unsupported(why);
}

const char* error_text() {
  return g_problem.empty() ? g_inner->error_text() : g_problem.c_str();
}

}  // namespace

extern "C" NPU_EXPORT const npu_driver* npu_driver_get(void) {
  static const npu_driver table = [] {
    std::string problem;
    g_inner = npu::load_library(npu::find_library("cmodel"), &problem);
    npu_driver out = *g_inner;
    out.name = "poor";
    out.error_text = error_text;
    out.open = open;
    out.device_open = device_open;
    out.device_properties = device_properties;
    out.memory_alloc = memory_alloc;
    out.stream_create = stream_create;
    out.program_create = program_create;
    out.program_destroy = program_destroy;
    out.supports = supports;
    out.submit = submit;
    out.choices = nullptr;
    return out;
  }();
  return &table;
}
