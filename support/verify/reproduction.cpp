#include "support/verify/reproduction.h"

#include <algorithm>
#include <cctype>

namespace npu {

std::string reproduction_name(const std::string& prefix, const npu_command& command, uint64_t number) {
  std::string name = prefix + "-" + std::to_string(number) + "-" + (command.label ? command.label : "command");
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  return name + ".npt";
}

void write_reproduction(const std::string& path, const std::string& info_json, const npu_command& command,
                        const npu_program_desc* program, Mirror& before, const std::vector<Region>& regions,
                        const std::vector<Written>& written, uint64_t number) {
  TraceWriter out(path, info_json);
  append_reproduction(out, command, program, before, regions, written, number);
  out.finish();
}

void append_reproduction(TraceWriter& out, const npu_command& command, const npu_program_desc* program, Mirror& before,
                         const std::vector<Region>& regions, const std::vector<Written>& written, uint64_t number) {
  // Only what is touched, not the large allocations around it. Regions that overlap become one piece of memory. Pieces
  // keep their addresses modulo the usual alignment, so that a device sees the same misalignment.
  std::vector<Extent> pieces;
  std::vector<Region> sorted = regions;
  std::sort(sorted.begin(), sorted.end(), [](const Region& a, const Region& b) { return a.addr < b.addr; });
  for (const Region& region : sorted) {
    const Extent block = before.allocation(region.addr);
    const npu_addr begin = std::max(block.addr, region.addr & ~npu_addr{511});
    const npu_addr end = region.addr + region.size;
    if (!pieces.empty() && begin < pieces.back().addr + pieces.back().size)
      pieces.back().size = std::max(pieces.back().size, end - pieces.back().addr);
    else
      pieces.push_back({begin, end - begin});
  }
  for (const Extent& piece : pieces) {
    out.alloc(piece.addr, piece.size);
    if (const std::byte* bytes = before.find(piece.addr, piece.size)) out.write(piece.addr, bytes, piece.size);
  }
  if (program) out.program(number, *program);
  out.command(TraceCommand(command, number, program ? number : 0));
  for (const Written& one : written)
    out.result(one.region.operand, one.region.addr, one.want.data(), one.want.size(), true);
  for (const Extent& piece : pieces) out.free(piece.addr);
}

}  // namespace npu
