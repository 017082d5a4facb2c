#include "support/verify/trace.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "support/verify/trace_format.h"

namespace npu {

uint32_t crc32(const void* data, size_t size, uint32_t before) {
  static const auto table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ 0xEDB88320u : value >> 1;
      made[i] = value;
    }
    return made;
  }();
  uint32_t crc = ~before;
  for (const auto *at = static_cast<const unsigned char*>(data), *end = at + size; at != end; ++at)
    crc = crc >> 8 ^ table[(crc ^ *at) & 0xff];
  return ~crc;
}

TraceCommand::TraceCommand(const npu_command& c, uint64_t number, uint64_t program)
    : number(number), program(program), label(c.label ? c.label : ""), command(c) {
  if (c.operands) operands.assign(c.operands, c.operands + c.operand_count);
  if (c.params) params.assign(c.params, c.params + c.param_count);
}

npu_command TraceCommand::borrow() const {
  npu_command out = command;
  out.struct_size = sizeof out;
  out.operands = operands.data();
  out.operand_count = static_cast<uint32_t>(operands.size());
  out.params = params.data();
  out.param_count = static_cast<uint32_t>(params.size());
  out.program = nullptr;
  out.label = label.c_str();
  return out;
}

// Little-endian, as every machine that this runs on.
class TraceWriter::Pack {
 public:
  Pack& u8(uint8_t v) { return raw(&v, sizeof v); }
  Pack& u32(uint32_t v) { return raw(&v, sizeof v); }
  Pack& u64(uint64_t v) { return raw(&v, sizeof v); }
  Pack& i64s(const int64_t* v, int count) { return raw(v, static_cast<size_t>(count) * sizeof *v); }
  Pack& text(const std::string& v) { return u32(static_cast<uint32_t>(v.size())).raw(v.data(), v.size()); }
  Pack& raw(const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return *this;
  }
  std::string bytes;
};

TraceWriter::TraceWriter(const std::string& path, const std::string& info_json) : path_(path) {
  file_ = std::fopen(path.c_str(), "wb");
  if (!file_) throw std::runtime_error("expected to write the recording " + path + ", got: " + std::strerror(errno));
  Pack head;
  head.raw(kTraceMagic, sizeof kTraceMagic).u32(kTraceVersion);
  put(head.bytes.data(), head.bytes.size());
  entry(Entry::kInfo, info_json);
}

TraceWriter::~TraceWriter() {
  try {
    finish();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
  }
}

void TraceWriter::put(const void* data, size_t size) {
  if (!file_ || size == 0) return;
  crc_ = crc32(data, size, crc_);
  bytes_ += size;
  failed_ |= std::fwrite(data, 1, size, file_) != size;
}

void TraceWriter::entry(Entry kind, const std::string& head, const void* data, uint64_t size) {
  Pack frame;
  frame.u32(static_cast<uint32_t>(kind)).u64(head.size() + size);
  put(frame.bytes.data(), frame.bytes.size());
  put(head.data(), head.size());
  put(data, size);
}

void TraceWriter::alloc(npu_addr addr, uint64_t size) {
  entry(Entry::kAlloc, Pack().u64(addr).u64(size).bytes);
}
void TraceWriter::free(npu_addr addr) {
  entry(Entry::kFree, Pack().u64(addr).bytes);
}
void TraceWriter::write(npu_addr addr, const void* data, uint64_t size) {
  entry(Entry::kWrite, Pack().u64(addr).bytes, data, size);
}
void TraceWriter::copy(npu_addr to, npu_addr from, uint64_t size) {
  entry(Entry::kCopy, Pack().u64(to).u64(from).u64(size).bytes);
}
void TraceWriter::program(uint64_t number, const npu_program_desc& desc) {
  entry(Entry::kProgram, Pack().u64(number).bytes + to_text(desc));
}

void TraceWriter::command(const TraceCommand& one) {
  const npu_command& c = one.command;
  Pack p;
  p.u64(one.number).u64(one.program).text(one.label);
  p.u8(c.kind).u8(c.rank).u8(c.inner_rank).i64s(c.size, NPU_MAX_RANK);
  p.u32(static_cast<uint32_t>(one.operands.size())).u32(static_cast<uint32_t>(one.params.size()));
  for (const npu_operand& o : one.operands)
    p.u64(o.addr).u64(static_cast<uint64_t>(o.limit)).u8(o.dtype).u8(o.flags).i64s(o.stride, NPU_MAX_RANK);
  for (const npu_scalar& s : one.params) p.u64(s.u);
  if (c.kind == NPU_MATMUL) {
    p.u64(static_cast<uint64_t>(c.u.matmul.k)).u8(c.u.matmul.acc_dtype).u8(c.u.matmul.flags);
  } else if (c.kind == NPU_SORT) {
    p.u64(static_cast<uint64_t>(c.u.sort.count)).u8(c.u.sort.descending).u8(c.u.sort.stable);
  } else if (c.kind == NPU_CONV) {
    const npu_conv& v = c.u.conv;
    const int64_t four[] = {v.batch, v.in_channels, v.out_channels, v.groups};
    p.u32(v.mode).u32(v.spatial_rank).i64s(four, 4);
    for (const int64_t* three : {v.in_size, v.out_size, v.kernel, v.stride, v.padding, v.dilation}) p.i64s(three, 3);
    p.u8(v.acc_dtype).u8(v.flags);
  }
  entry(Entry::kCommand, p.bytes);
  ++commands_;
}

void TraceWriter::flush() {
  if (file_) failed_ |= std::fflush(file_) != 0;
}

void TraceWriter::drop_command() {
  entry(Entry::kDropped, {});
  --commands_;
}

void TraceWriter::result(uint32_t operand, npu_addr addr, const void* data, uint64_t size, bool with_data) {
  Pack p;
  p.u32(operand).u64(addr).u64(size).u32(crc32(data, size)).u8(with_data);
  entry(Entry::kResult, p.bytes, data, with_data ? size : 0);
}

void TraceWriter::read(npu_addr addr, const void* data, uint64_t size) {
  entry(Entry::kRead, Pack().u64(addr).u64(size).u32(crc32(data, size)).bytes);
}

void TraceWriter::finish() {
  if (!file_) return;
  entry(Entry::kEnd, Pack().u64(commands_).u32(crc_).bytes);
  failed_ |= std::fclose(file_) != 0;
  file_ = nullptr;
  if (failed_) throw std::runtime_error("expected room for the recording " + path_ + ", got: the disk is full");
}

}  // namespace npu
