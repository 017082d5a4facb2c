#include "tools/driver_test/command/line.h"

namespace driver_test {

Line::Line(Rig& r, const Builder& builder, int64_t n, const std::vector<int>& dtypes, const char* label) : rig(r) {
  const npu_program_desc desc = builder.program.desc();
  const npu_status status = rig.d.program_create(rig.device, &desc, &program);
  if (status == NPU_UNSUPPORTED) throw NotSupported{"the driver does not have the program " + builder.program.name};
  rig.ok(status, "program_create");
  for (const int dtype : dtypes) {
    npu_operand& o = operands.emplace_back();
    o.addr = rig.alloc(static_cast<uint64_t>(n * npu::dtype_size(dtype)));
    o.dtype = static_cast<uint8_t>(dtype);
    o.stride[0] = 1;
  }
  command.struct_size = sizeof command;
  command.kind = NPU_MAP;
  command.rank = 1;
  command.size[0] = n;
  command.operand_count = static_cast<uint32_t>(operands.size());
  command.operands = operands.data();
  command.program = program;
  command.label = label;
}

Line::~Line() {
  rig.d.program_destroy(program);
}

void Line::submit(npu_stream* stream) const {
  const npu_status status = rig.d.submit(stream ? stream : rig.stream, &command);
  if (status == NPU_UNSUPPORTED) throw NotSupported{say("the driver does not run ", command.label, " in a MAP")};
  rig.ok(status, "submit");
}

npu_status Line::run() const {
  const npu_status status = rig.d.submit(rig.stream, &command);
  return status == NPU_OK ? rig.d.stream_synchronize(rig.stream) : status;
}

}  // namespace driver_test
