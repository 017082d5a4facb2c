#include <cstring>
#include <fstream>
#include <set>
#include <stdexcept>

#include "support/verify/trace.h"
#include "support/verify/trace_format.h"

namespace npu {
namespace {

[[noreturn]] void wrong(const std::string& path, const std::string& what) {
  throw std::runtime_error("expected a whole recording of torch_npu (.npt) at " + path + ", got " + what);
}

class Unpack {
 public:
  Unpack(const std::string& path, const char* at, uint64_t size) : path_(path), at_(at), left_(size) {}
  uint8_t u8() { return get<uint8_t>(); }
  uint32_t u32() { return get<uint32_t>(); }
  uint64_t u64() { return get<uint64_t>(); }
  int64_t i64() { return get<int64_t>(); }
  void i64s(int64_t* to, int count) {
    for (int i = 0; i < count; ++i) to[i] = i64();
  }
  std::string text(uint64_t size) {
    const char* from = take(size);
    return std::string(from, size);
  }
  std::vector<std::byte> rest() {
    std::vector<std::byte> out(left_);
    if (left_) std::memcpy(out.data(), at_, left_);
    left_ = 0;
    return out;
  }
  uint64_t left() const { return left_; }

 private:
  const char* take(uint64_t size) {
    if (size > left_) wrong(path_, "one with an entry that is too short: it is damaged");
    const char* from = at_;
    at_ += size;
    left_ -= size;
    return from;
  }
  template <class T>
  T get() {
    T out;
    std::memcpy(&out, take(sizeof out), sizeof out);
    return out;
  }
  const std::string& path_;
  const char* at_;
  uint64_t left_;
};

TraceCommand unpack_command(const std::string& path, Unpack& in) {
  TraceCommand one;
  one.number = in.u64();
  one.program = in.u64();
  one.label = in.text(in.u32());
  npu_command& c = one.command;
  c.struct_size = sizeof c;
  c.kind = in.u8();
  c.rank = in.u8();
  c.inner_rank = in.u8();
  in.i64s(c.size, NPU_MAX_RANK);
  const uint32_t operands = in.u32(), params = in.u32();
  if (c.kind >= NPU_COMMAND_COUNT || c.rank > NPU_MAX_RANK || c.inner_rank > c.rank || operands > NPU_MAX_OPERANDS ||
      params > NPU_MAX_PARAMS)
    wrong(path, "one with a command that this version does not know");
  for (uint32_t i = 0; i < operands; ++i) {
    npu_operand o{};
    o.addr = in.u64();
    o.limit = in.i64();
    o.dtype = in.u8();
    o.flags = in.u8();
    in.i64s(o.stride, NPU_MAX_RANK);
    one.operands.push_back(o);
  }
  for (uint32_t i = 0; i < params; ++i) one.params.push_back({.u = in.u64()});
  if (c.kind == NPU_MATMUL) {
    c.u.matmul.k = in.i64();
    c.u.matmul.acc_dtype = in.u8();
    c.u.matmul.flags = in.u8();
  } else if (c.kind == NPU_SORT) {
    c.u.sort.count = in.i64();
    c.u.sort.descending = in.u8();
    c.u.sort.stable = in.u8();
  } else if (c.kind == NPU_CONV) {
    npu_conv& v = c.u.conv;
    v.mode = in.u32();
    v.spatial_rank = in.u32();
    v.batch = in.i64();
    v.in_channels = in.i64();
    v.out_channels = in.i64();
    v.groups = in.i64();
    for (int64_t* three : {v.in_size, v.out_size, v.kernel, v.stride, v.padding, v.dilation}) in.i64s(three, 3);
    v.acc_dtype = in.u8();
    v.flags = in.u8();
  }
  return one;
}

void unpack_result(const std::string& path, Unpack& in, Trace& trace) {
  if (trace.entries.empty() || trace.entries.back().kind != Entry::kCommand)
    wrong(path, "one with a result that belongs to no command");
  Result result;
  result.operand = in.u32();
  result.addr = in.u64();
  result.size = in.u64();
  result.crc = in.u32();
  result.has_data = in.u8();
  result.data = in.rest();
  if (result.operand >= trace.entries.back().command.operands.size() ||
      (result.has_data && result.data.size() != result.size))
    wrong(path, "one with a result that does not fit its command");
  trace.entries.back().results.push_back(std::move(result));
}

void unpack(const std::string& path, Entry kind, Unpack& in, Trace& trace, std::set<uint64_t>& programs) {
  if (kind == Entry::kResult) return unpack_result(path, in, trace);
  TraceEntry entry;
  entry.kind = kind;
  switch (kind) {
    case Entry::kInfo:
      trace.info = in.text(in.left());
      return;
    case Entry::kAlloc:
      entry.addr = in.u64();
      entry.size = in.u64();
      break;
    case Entry::kFree:
      entry.addr = in.u64();
      break;
    case Entry::kWrite:
      entry.addr = in.u64();
      entry.size = in.left();
      entry.data = in.rest();
      break;
    case Entry::kCopy:
      entry.addr = in.u64();
      entry.from = in.u64();
      entry.size = in.u64();
      break;
    case Entry::kProgram:
      entry.number = in.u64();
      try {
        entry.program = parse(in.text(in.left()));
      } catch (const std::invalid_argument& problem) {
        wrong(path, std::string("one with a bad program: ") + problem.what());
      }
      programs.insert(entry.number);
      break;
    case Entry::kCommand:
      entry.command = unpack_command(path, in);
      if (entry.command.program && !programs.count(entry.command.program))
        wrong(path, "one with a command whose program is missing");
      ++trace.commands;
      break;
    case Entry::kDropped:
      if (trace.entries.empty() || trace.entries.back().kind != Entry::kCommand ||
          !trace.entries.back().results.empty())
        wrong(path, "one that drops a command that is not there");
      trace.entries.pop_back();
      --trace.commands;
      return;
    case Entry::kRead:
      entry.addr = in.u64();
      entry.size = in.u64();
      entry.crc = in.u32();
      break;
    default:
      wrong(path, "one with an entry of kind " + std::to_string(static_cast<uint32_t>(kind)) +
                      ", which this version does not know");
  }
  trace.entries.push_back(std::move(entry));
}

}  // namespace

Trace read_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error("expected a recording (.npt) at " + path + ", got no such file");
  std::string bytes(static_cast<size_t>(std::max<std::streamoff>(file.tellg(), 0)), '\0');
  file.seekg(0);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file && !bytes.empty()) throw std::runtime_error("expected to read " + path + ", got an error");
  constexpr size_t kHead = sizeof kTraceMagic + 4, kFrame = 12;
  if (bytes.size() < kHead || std::memcmp(bytes.data(), kTraceMagic, sizeof kTraceMagic) != 0)
    wrong(path, "a file of another kind");
  uint32_t version = 0;
  std::memcpy(&version, bytes.data() + sizeof kTraceMagic, 4);
  if (version != kTraceVersion)
    wrong(path, "version " + std::to_string(version) + "; this program reads version " + std::to_string(kTraceVersion));
  Trace trace;
  trace.path = path;
  std::set<uint64_t> programs;
  for (size_t at = kHead; at + kFrame <= bytes.size();) {
    uint32_t kind = 0;
    uint64_t size = 0;
    std::memcpy(&kind, bytes.data() + at, 4);
    std::memcpy(&size, bytes.data() + at + 4, 8);
    if (size > bytes.size() - at - kFrame) break;
    Unpack in(path, bytes.data() + at + kFrame, size);
    if (static_cast<Entry>(kind) == Entry::kEnd) {
      const uint64_t commands = in.u64();
      if (in.u32() != crc32(bytes.data(), at) || commands != trace.commands)
        wrong(path, "one whose checksum does not fit: it is damaged");
      return trace;
    }
    unpack(path, static_cast<Entry>(kind), in, trace, programs);
    at += kFrame + size;
  }
  // A file with an end was written to the last byte.
  uint32_t last = 0;
  constexpr size_t kEndSize = kFrame + 12;
  if (bytes.size() >= kHead + kEndSize) std::memcpy(&last, bytes.data() + bytes.size() - kEndSize, 4);
  if (static_cast<Entry>(last) == Entry::kEnd) wrong(path, "one with an entry that is too long: it is damaged");
  if (trace.info.empty()) wrong(path, "one that is cut off at its beginning");
  trace.cut_off = true;
  return trace;
}

}  // namespace npu
