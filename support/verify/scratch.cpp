#include <algorithm>

#include "support/program/op_info.h"
#include "support/program/program.h"
#include "support/verify/budget.h"

namespace npu {

Scratch::Scratch(Mirror& before, const std::vector<Region>& regions) : before_(before) {
  std::vector<Region> sorted = regions;
  std::sort(sorted.begin(), sorted.end(), [](const Region& a, const Region& b) { return a.addr < b.addr; });
  // Regions that overlap share their bytes; ones that merely touch may lie in different allocations.
  for (const Region& region : sorted) {
    if (!pieces_.empty() && region.addr < pieces_.back().addr + pieces_.back().bytes.size()) {
      Piece& last = pieces_.back();
      last.bytes.resize(std::max<uint64_t>(last.bytes.size(), region.addr + region.size - last.addr));
    } else {
      pieces_.push_back({region.addr, std::vector<std::byte>(region.size)});
    }
  }
  for (Piece& piece : pieces_)
    if (const std::byte* from = before.find(piece.addr, piece.bytes.size()))
      std::copy_n(from, piece.bytes.size(), piece.bytes.begin());
}

std::byte* Scratch::find(npu_addr addr, uint64_t size) {
  for (Piece& piece : pieces_)
    if (addr >= piece.addr && addr - piece.addr <= piece.bytes.size() &&
        size <= piece.bytes.size() - (addr - piece.addr))
      return piece.bytes.data() + (addr - piece.addr);
  return nullptr;
}

void Scratch::make_absolute(const std::vector<Region>& regions) {
  for (const Region& region : regions) {
    if (!is_float(region.dtype)) continue;
    const auto width = static_cast<uint64_t>(dtype_size(region.dtype));
    std::byte* bytes = find(region.addr, region.size);
    for (uint64_t at = width - 1; at < region.size; at += width) bytes[at] &= std::byte{0x7f};
  }
}

npu_status Scratch::run(const npu_command& command, const npu_program_desc* program, std::string* error) {
  const Translate translate = [&](npu_addr addr, uint64_t size, bool write) -> void* {
    if (std::byte* bytes = find(addr, size)) return bytes;
    return write ? nullptr : before_.find(addr, size);
  };
  npu_command plain = command;
  plain.choice = 0;  // of a driver; isa.md has one way
  return run_reference(plain, program, translate, error);
}

}  // namespace npu
