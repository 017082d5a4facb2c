#include "tools/driver_test/tests/recorded.h"

#include <algorithm>
#include <map>

#include "support/reference/reference.h"
#include "support/verify/element.h"
#include "support/verify/trace.h"
#include "tools/driver_test/command/case.h"

namespace driver_test {

namespace {

// Memory as the recording says it is before each command.
class Memory {
 public:
  void add(npu_addr addr, uint64_t size) { blocks_[addr] = Bytes(size); }
  void remove(npu_addr addr) { blocks_.erase(addr); }
  uint8_t* find(npu_addr addr, uint64_t size) {
    const npu::Extent block = around(addr);
    if (addr - block.addr > block.size || size > block.size - (addr - block.addr)) return nullptr;
    return blocks_[block.addr].data() + (addr - block.addr);
  }
  npu::Extent around(npu_addr addr) const {
    auto block = blocks_.upper_bound(addr);
    if (block == blocks_.begin()) return {};
    --block;
    return addr - block->first < block->second.size() ? npu::Extent{block->first, block->second.size()} : npu::Extent{};
  }

 private:
  std::map<npu_addr, Bytes> blocks_;
};

// Operands that share bytes share a buffer. Those of two types do so only where it is not known how far one reaches:
// the elements of a table without a limit may be anywhere in its allocation. Each has a copy then.
struct Piece {
  npu_addr addr;
  uint64_t size;
  int dtype;
};

std::vector<Piece> pieces_of(const std::vector<npu::Region>& regions) {
  std::vector<Piece> out;
  for (const npu::Region& r : regions) {
    Piece piece{r.addr, r.size, r.dtype};
    for (size_t i = 0; i < out.size();) {
      const Piece& other = out[i];
      const bool apart = other.addr >= piece.addr + piece.size || piece.addr >= other.addr + other.size;
      if (apart || other.dtype != piece.dtype) {
        i++;
        continue;
      }
      const npu_addr end = std::max(piece.addr + piece.size, other.addr + other.size);
      piece.addr = std::min(piece.addr, other.addr);
      piece.size = end - piece.addr;
      out.erase(out.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;
    }
    out.push_back(piece);
  }
  return out;
}

Case case_of(const npu_command& command, const npu::Program* program, Memory& memory) {
  std::vector<int64_t> size(command.size, command.size + command.rank);
  Case c(static_cast<npu_command_kind>(command.kind), size, command.inner_rank);
  c.command.u = command.u;
  c.command.label = "driver-test";
  c.operands.assign(command.operands, command.operands + command.operand_count);
  c.params.assign(command.params, command.params + command.param_count);
  if (program) c.program = *program;
  npu_program_desc desc{};
  if (program) desc = program->desc();
  const auto regions =
      npu::footprint(command, program ? &desc : nullptr, [&](npu_addr addr) { return memory.around(addr); });
  const auto pieces = pieces_of(regions);
  for (const Piece& piece : pieces) {
    const uint8_t* bytes = memory.find(piece.addr, piece.size);
    c.buffers.push_back({piece.dtype, static_cast<int64_t>(piece.size) / npu::dtype_size(piece.dtype),
                         Bytes(bytes, bytes + piece.size), piece.addr});
  }
  c.places.resize(c.operands.size());
  for (const npu::Region& r : regions)
    for (size_t n = 0; n < pieces.size(); n++)
      if (r.dtype == pieces[n].dtype && r.addr >= pieces[n].addr && r.addr < pieces[n].addr + pieces[n].size) {
        const auto offset = static_cast<int64_t>(c.operands[r.operand].addr - pieces[n].addr);
        c.places[r.operand] = {static_cast<int>(n), offset / npu::dtype_size(r.dtype)};
      }
  c.by_budget = true;
  return c;
}

}  // namespace

std::vector<Test> recorded_tests(const std::string& path) {
  const npu::Trace trace = npu::read_trace(path);
  const std::string file = path.substr(path.rfind('/') + 1);
  Memory memory;
  std::map<uint64_t, npu::Program> programs;
  std::vector<Test> out;
  for (const npu::TraceEntry& entry : trace.entries) {
    if (entry.kind == npu::Entry::kAlloc) memory.add(entry.addr, entry.size);
    if (entry.kind == npu::Entry::kFree) memory.remove(entry.addr);
    if (entry.kind == npu::Entry::kProgram) programs[entry.number] = entry.program;
    if (entry.kind == npu::Entry::kWrite)
      if (uint8_t* to = memory.find(entry.addr, entry.data.size()))
        std::memcpy(to, entry.data.data(), entry.data.size());
    if (entry.kind == npu::Entry::kCopy) {
      uint8_t* to = memory.find(entry.addr, entry.size);
      const uint8_t* from = memory.find(entry.from, entry.size);
      if (to && from) std::memmove(to, from, entry.size);
    }
    if (entry.kind != npu::Entry::kCommand) continue;
    const npu_command command = entry.command.borrow();
    const npu::Program* program = entry.command.program ? &programs.at(entry.command.program) : nullptr;
    Case c = case_of(command, program, memory);
    const std::string name = say(npu::command_name(command.kind), ": command ", entry.command.number, " of ", file,
                                 ", ", entry.command.label, " of ", npu::list_text(command.size, command.rank));
    out.push_back({name, [c](Context& context) {
                     Rig rig(context);
                     Case one = c;
                     one.same_nans = false;
                     one.run(rig);
                     conclude(context);
                   }});
    npu_program_desc desc{};
    if (program) desc = program->desc();
    std::string error;
    npu::run_reference(
        command, program ? &desc : nullptr,
        [&](npu_addr addr, uint64_t size, bool) -> void* { return memory.find(addr, size); }, &error);
  }
  if (out.empty()) throw std::runtime_error(path + " has no command");
  return out;
}

}  // namespace driver_test
