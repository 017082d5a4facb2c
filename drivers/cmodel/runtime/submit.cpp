// Programs, and the way of a command from the host to the stream.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "drivers/cmodel/choose/choice.h"
#include "drivers/cmodel/runtime/choices.h"
#include "drivers/cmodel/runtime/device.h"
#include "drivers/cmodel/runtime/run_job.h"
#include "support/reference/reference.h"

namespace cmodel {
namespace {

constexpr int64_t kExactFactor = 64;  // the reference interprets: so much slower than the estimate

// What validate_command looks at in a MAP, REDUCE, SCAN, SCATTER or COPY, other than sizes. A command that agrees in
// all of it with one that was valid is valid; each thread remembers some. Sizes are checked every time.
struct Signature {
  uint64_t program = 0;
  uint64_t shape = ~uint64_t{0};  // kind, rank, inner_rank and counts; no command has this one
  uint64_t types[4] = {};         // dtype and flags of the first eight operands, and of eight more
  bool operator==(const Signature&) const = default;
};

constexpr uint32_t kRemembered = 64;
thread_local Signature t_valid[kRemembered];

bool has_signature(const npu_command& c) {
  return c.kind <= NPU_SCATTER && c.kind != NPU_SORT && c.operand_count <= 16 && (c.operands || c.operand_count == 0) &&
         c.struct_size == sizeof(npu_command);
}

Signature signature_of(const npu_command& c) {
  Signature s;
  s.program = c.program ? c.program->id : 0;
  s.shape = c.kind | uint64_t{c.rank} << 8 | uint64_t{c.inner_rank} << 16 | uint64_t{c.operand_count} << 24 |
            uint64_t{c.param_count & 0xffff} << 32 | uint64_t{c.choice} << 48;
  for (uint32_t i = 0; i < c.operand_count; ++i) {
    s.types[i / 8 * 2] |= uint64_t{c.operands[i].dtype} << (8 * (i % 8));
    s.types[i / 8 * 2 + 1] |= uint64_t{c.operands[i].flags} << (8 * (i % 8));
  }
  return s;
}

uint32_t slot_of(const Signature& s) {
  const uint64_t mixed = (s.program * 0x9E3779B97F4A7C15u) ^ (s.shape * 0xC2B2AE3D27D4EB4Fu) ^
                         (s.types[0] * 0x165667B19E3779F9u) ^ (s.types[1] * 0x27D4EB2F165667C5u) ^
                         (s.types[2] * 0x85EBCA77C2B2AE63u) ^ s.types[3];
  return static_cast<uint32_t>(mixed >> 58) % kRemembered;
}

// Every field in use is assigned, and clearing the rest (most commands have three operands, not sixty-four) would cost
// more than the rest of a small submit.
template <class T>
union Uninitialized {
  Uninitialized() {}
  T value;
};

npu_status invalid(const npu_command& c, std::string why) {
  // The validator names the command too, but does not know who asked for it.
  const std::string name = std::string(npu::command_name(c.kind)) + ": ";
  if (why.starts_with(name)) why.erase(0, name.size());
  return error(NPU_ERROR_INVALID, describe(c) + ": " + why);
}

npu_status check_fully(const npu_device* device, const npu_command& c) {
  if (c.struct_size < sizeof(npu_command))
    return error(NPU_ERROR_INVALID, "expected a command of at least " + std::to_string(sizeof(npu_command)) +
                                        " bytes in struct_size, got " + std::to_string(c.struct_size));
  if (c.program && c.program->device != device)
    return invalid(c, "expected a program of this device, got one of another");
  npu_program_desc desc{};
  if (c.program) desc = c.program->program->source.desc();
  npu_command decided = c;  // the validator knows no driver's choices
  if (!device->options.exact && is_choice(c)) decided.choice = 0;
  const std::string why = npu::validate_command(decided, c.program ? &desc : nullptr);
  return why.empty() ? NPU_OK : invalid(c, why);
}

// Valid as a whole, cheaply where something like it was valid before.
npu_status check(const npu_device* device, const npu_command& c) {
  if (!has_signature(c) || (c.program && c.program->device != device)) return check_fully(device, c);
  const Signature signature = signature_of(c);
  Signature& known = t_valid[slot_of(signature)];
  if (!(known == signature)) {
    const npu_status status = check_fully(device, c);
    if (status == NPU_OK) known = signature;
    return status;
  }
  int64_t points = 1;
  bool bad = false;
  for (int d = 0; d < c.rank; ++d) bad |= c.size[d] < 0 || __builtin_mul_overflow(points, c.size[d], &points);
  return bad ? check_fully(device, c) : NPU_OK;  // a zero hides an overflow: let the validator say
}

// The job's parts, copied behind the record. Immediates point into their own operand.
npu_status enqueue(npu_stream& stream, const npu_command& c, const Job& job) {
  const bool exact = stream.device->options.exact;
  const uint64_t operand_bytes = c.operand_count * (exact ? sizeof(npu_operand) : sizeof(Operand));
  const uint64_t param_bytes = c.param_count * sizeof(npu_scalar);
  auto* record = stream.make_record<CommandRecord>(Record::kCommand, operand_bytes + param_bytes);
  if (!record) return NPU_ERROR_INTERNAL;
  record->job.command = c;
  record->job.program = job.program;
  if (c.program) record->program = c.program->program;
  char* extra = reinterpret_cast<char*>(record + 1);
  if (exact) {
    std::memcpy(extra, c.operands, operand_bytes);
    record->job.command.operands = reinterpret_cast<const npu_operand*>(extra);
  } else {
    auto* operands = reinterpret_cast<Operand*>(extra);
    for (uint32_t i = 0; i < c.operand_count; ++i) {
      Operand* operand = new (&operands[i]) Operand(job.operands[i]);
      if (!operand->immediate) continue;
      operand->ptr = operand->begin = reinterpret_cast<char*>(&operand->bits);
      operand->end = operand->begin + sizeof operand->bits;
    }
    record->job.operands = operands;
  }
  auto* params = reinterpret_cast<npu_scalar*>(extra + operand_bytes);
  if (param_bytes) std::memcpy(params, c.params, param_bytes);
  record->job.params = record->job.command.params = params;
  stream.enqueue(record);
  return NPU_OK;
}

}  // namespace
}  // namespace cmodel

namespace npu::driver {
using namespace cmodel;

npu_status program_create(npu_device* device, const npu_program_desc* desc, npu_program** out) {
  if (!device || !desc || !out) return error(NPU_ERROR_INVALID, "expected a device and a program, got a null pointer");
  if (desc->struct_size < sizeof(npu_program_desc))
    return error(NPU_ERROR_INVALID, "expected a program of at least " + std::to_string(sizeof(npu_program_desc)) +
                                        " bytes in struct_size, got " + std::to_string(desc->struct_size));
  const std::string why = npu::validate(*desc);
  if (!why.empty())
    return error(NPU_ERROR_INVALID, "program " + std::string(desc->name ? desc->name : "?") + ": " + why);
  static std::atomic<uint64_t> next_id{1};
  auto program = std::make_shared<cmodel::Program>();
  program->source = npu::Program::copy_of(*desc);
  program->plan = make_plan(program->source);
  const ProgramAccess access = ProgramAccess::of(program->source);
  const uint64_t id = next_id.fetch_add(1, std::memory_order_relaxed);
  *out = device->programs.add(
      std::unique_ptr<npu_program>(new npu_program{device, id, desc->param_count, std::move(program), access}));
  return NPU_OK;
}

void program_destroy(npu_program* program) {
  if (program) program->device->programs.destroy(program);
}

npu_status supports(npu_device* device, const npu_command* command) {
  if (!device || !command) return error(NPU_ERROR_INVALID, "expected a device and a command, got a null pointer");
  return check_fully(device, *command);
}

npu_status choices(npu_device* device, const npu_command* command, npu_choice* out, uint32_t capacity,
                   uint32_t* count) {
  if (!device || !command || !count || (capacity && !out))
    return error(NPU_ERROR_INVALID, "expected a device, a command and room for choices, got a null pointer");
  const npu_status status = check_fully(device, *command);
  if (status != NPU_OK) return status;
  const std::vector<npu_choice> found = device->options.exact ? std::vector<npu_choice>{} : choices_for(*command);
  *count = static_cast<uint32_t>(found.size());
  std::copy_n(found.begin(), std::min<size_t>(capacity, found.size()), out);
  return NPU_OK;
}

npu_status submit(npu_stream* stream, const npu_command* command) {
  if (!stream || !command) return error(NPU_ERROR_INVALID, "expected a stream and a command, got a null pointer");
  const npu_command& c = *command;
  const npu_device* device = stream->device;
  npu_status status = check(device, c);
  if (status != NPU_OK) return status;
  if (c.program && c.program->params > 0 && (!c.params || c.param_count < c.program->params))
    return invalid(c, "expected " + std::to_string(c.program->params) + " parameters, got " +
                          std::to_string(c.params ? c.param_count : 0));

  Uninitialized<Operand[NPU_MAX_OPERANDS]> storage;
  Operand* operands = storage.value;
  std::string why;
  status = bind_operands(device->memory, c, c.program ? &c.program->access : nullptr, operands, &why);
  if (status != NPU_OK) return error(status, why);

  Uninitialized<Job> room;
  Job& job = room.value;
  const bool has_details = c.kind == NPU_SORT || c.kind == NPU_MATMUL || c.kind == NPU_CONV;
  std::memcpy(&job.command, &c, offsetof(npu_command, u));
  if (has_details) job.command.u = c.u;
  job.program = c.program ? c.program->program.get() : nullptr;
  job.operands = operands;
  job.params = c.params;
  const int64_t cost = device->options.exact ? estimate_ns(job) * kExactFactor : estimate_ns(job);

  npu::Work work;
  Timing* const timing = device->instance->timing.get();
  if (timing) [[unlikely]] {
    npu_program_desc desc{};
    if (c.program) desc = c.program->program->source.desc();
    work = npu::work_of(c, c.program ? &desc : nullptr);
  }

  std::lock_guard<std::mutex> lock(stream->submit);
  if (timing) [[unlikely]]
    stream->predicted_ns += timing->add(c.label, work);
  if (cost > device->options.inline_ns || !stream->idle()) return enqueue(*stream, c, job);
  stream->begin_inline();
  run_job(*stream, job);
  stream->end_inline();
  return NPU_OK;
}

}  // namespace npu::driver
