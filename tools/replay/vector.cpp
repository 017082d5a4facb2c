#include "tools/replay/vector.h"

#include <cstdio>
#include <map>

#include "support/driver/json_text.h"
#include "support/verify/element.h"

namespace replay {

using namespace npu;

namespace {

std::string hex_bytes(const std::vector<std::byte>& bytes) {
  static const char* digits = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    out += digits[std::to_integer<int>(b) >> 4];
    out += digits[std::to_integer<int>(b) & 15];
  }
  return out;
}

// Old address to new, by allocation.
class Moved {
 public:
  void add(npu_addr addr, uint64_t size) {
    const npu_addr offset = addr & 511;  // misalignment stays as it was
    blocks_[addr] = {next_ + offset, size};
    next_ = (next_ + offset + size + 511) / 512 * 512;
  }
  npu_addr operator()(npu_addr addr) const {
    auto found = blocks_.upper_bound(addr);
    if (found == blocks_.begin()) return addr;
    --found;
    return addr - found->first < found->second.second ? found->second.first + (addr - found->first) : addr;
  }

 private:
  std::map<npu_addr, std::pair<npu_addr, uint64_t>> blocks_;
  npu_addr next_ = 0x1000;
};

std::string kind_fields(const npu_command& c) {
  if (c.kind == NPU_MATMUL)
    return ",\n \"matmul\": {\"k\": " + std::to_string(c.u.matmul.k) +
           ", \"acc\": " + json_text(dtype_name(c.u.matmul.acc_dtype)) +
           ", \"flags\": " + std::to_string(c.u.matmul.flags) + "}";
  if (c.kind == NPU_SORT)
    return ",\n \"sort\": {\"count\": " + std::to_string(c.u.sort.count) +
           ", \"descending\": " + std::to_string(c.u.sort.descending) +
           ", \"stable\": " + std::to_string(c.u.sort.stable) + "}";
  if (c.kind != NPU_CONV) return "";
  const npu_conv& v = c.u.conv;
  const int n = static_cast<int>(v.spatial_rank);
  return ",\n \"conv\": {\"mode\": " + std::to_string(v.mode) + ", \"batch\": " + std::to_string(v.batch) +
         ", \"in_channels\": " + std::to_string(v.in_channels) +
         ", \"out_channels\": " + std::to_string(v.out_channels) + ", \"groups\": " + std::to_string(v.groups) +
         ", \"in_size\": " + list_text(v.in_size, n) + ", \"out_size\": " + list_text(v.out_size, n) +
         ", \"kernel\": " + list_text(v.kernel, n) + ", \"stride\": " + list_text(v.stride, n) +
         ", \"padding\": " + list_text(v.padding, n) + ", \"dilation\": " + list_text(v.dilation, n) +
         ", \"acc\": " + json_text(dtype_name(v.acc_dtype)) + ", \"flags\": " + std::to_string(v.flags) + "}";
}

std::string operand_json(const npu_operand& o, int rank, const Moved& moved) {
  const bool immediate = o.flags & NPU_OPERAND_IMMEDIATE;
  return std::string("{\"dtype\": ") + json_text(dtype_name(o.dtype)) +
         ", \"immediate\": " + (immediate ? "true" : "false") +
         ", \"address\": " + std::to_string(immediate ? o.addr : moved(o.addr)) +
         ", \"strides\": " + list_text(o.stride, rank) + ", \"limit\": " + std::to_string(o.limit) + "}";
}

std::string program_json(const Program& program) {
  std::string out = "{\"text\": " + json_text(to_text(program.desc())) + ", \"constants\": [";
  for (size_t i = 0; i < program.consts.size(); ++i) out += (i ? ", " : "") + json_text(hex_text(program.consts[i]));
  out += "], \"instructions\": [";
  for (size_t i = 0; i < program.instrs.size(); ++i) {
    const npu_instr& in = program.instrs[i];
    out += std::string(i ? ", " : "") + "{\"op\": " + json_text(op_name(in.op)) +
           ", \"dtype\": " + std::to_string(in.dtype) + ", \"flags\": " + std::to_string(in.flags) +
           ", \"a\": " + std::to_string(in.a) + ", \"b\": " + std::to_string(in.b) +
           ", \"c\": " + std::to_string(in.c) + ", \"mask\": " + std::to_string(in.mask) +
           ", \"imm\": " + std::to_string(in.imm) + "}";
  }
  return out + "]}";
}

}  // namespace

std::string vector_json(const Trace& trace) {
  Moved moved;
  std::string memory, program = "null", out;
  for (const TraceEntry& entry : trace.entries) {
    if (entry.kind == Entry::kAlloc) moved.add(entry.addr, entry.size);
    if (entry.kind == Entry::kWrite)
      memory += (memory.empty() ? "" : ",\n  ") + ("{\"address\": " + std::to_string(moved(entry.addr)) +
                                                   ", \"bytes\": \"" + hex_bytes(entry.data) + "\"}");
    if (entry.kind == Entry::kProgram) program = program_json(entry.program);
    if (entry.kind != Entry::kCommand) continue;
    const npu_command c = entry.command.borrow();
    out = "{\"format\": \"torch_npu test vector\", \"version\": 1,\n \"command\": " +
          std::to_string(entry.command.number) + ", \"kind\": " + json_text(command_name(c.kind)) +
          ", \"label\": " + json_text(entry.command.label) + ",\n \"size\": " + list_text(c.size, c.rank) +
          ", \"inner_rank\": " + std::to_string(c.inner_rank) + kind_fields(c) + ",\n \"operands\": [";
    for (uint32_t i = 0; i < c.operand_count; ++i)
      out += (i ? ",\n  " : "") + operand_json(c.operands[i], c.rank, moved);
    out += "],\n \"params\": [";
    for (uint32_t i = 0; i < c.param_count; ++i) out += (i ? ", " : "") + json_text(hex_text(c.params[i].u));
    out += "],\n \"expected\": [";
    for (size_t i = 0; i < entry.results.size(); ++i) {
      const Result& r = entry.results[i];
      out += std::string(i ? ",\n  " : "") + "{\"operand\": " + std::to_string(r.operand) +
             ", \"dtype\": " + json_text(dtype_name(c.operands[r.operand].dtype)) +
             ", \"address\": " + std::to_string(moved(r.addr)) + ", \"bytes\": \"" + hex_bytes(r.data) + "\"}";
    }
    out += "]";
  }
  return out + ",\n \"program\": " + program + ",\n \"memory\": [" + memory + "]}\n";
}

void print_list(const Trace& trace) {
  std::map<uint64_t, std::string> programs;
  for (const TraceEntry& entry : trace.entries) {
    if (entry.kind == Entry::kProgram) programs[entry.number] = entry.program.name;
    if (entry.kind == Entry::kAlloc)
      std::printf("        alloc %llu bytes at %s\n", static_cast<unsigned long long>(entry.size),
                  hex_text(entry.addr).c_str());
    if (entry.kind == Entry::kFree) std::printf("        free %s\n", hex_text(entry.addr).c_str());
    if (entry.kind == Entry::kWrite)
      std::printf("        write %llu bytes to %s\n", static_cast<unsigned long long>(entry.size),
                  hex_text(entry.addr).c_str());
    if (entry.kind == Entry::kCopy)
      std::printf("        copy %llu bytes from %s to %s\n", static_cast<unsigned long long>(entry.size),
                  hex_text(entry.from).c_str(), hex_text(entry.addr).c_str());
    if (entry.kind == Entry::kRead)
      std::printf("        read %llu bytes at %s\n", static_cast<unsigned long long>(entry.size),
                  hex_text(entry.addr).c_str());
    if (entry.kind != Entry::kCommand) continue;
    const npu_command command = entry.command.borrow();
    const std::string& program = programs[entry.command.program];
    std::printf("%6llu  %s%s%s\n", static_cast<unsigned long long>(entry.command.number), command_text(command).c_str(),
                program.empty() ? "" : ", program ", program.c_str());
  }
}

}  // namespace replay
