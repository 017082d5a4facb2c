// A case on a driver: given, waited for, compared; and in words.
#include <algorithm>

#include "support/program/validate.h"
#include "support/verify/budget.h"
#include "support/verify/element.h"
#include "tools/driver_test/command/case.h"

namespace driver_test {

void Case::launch(Rig& rig, npu_program* handle, Ran& ran) {
  link();
  command.program = handle;
  const npu_program_desc desc = program ? program->desc() : npu_program_desc{};
  if (std::string broken = npu::validate_command(command, program ? &desc : nullptr); !broken.empty())
    throw std::logic_error("the suite made a bad command: " + broken + "\n" + describe());
  const npu_status supported = rig.d.supports(rig.device, &command);
  if (supported != NPU_OK && supported != NPU_UNSUPPORTED) {
    ran.failed = say("supports: expected NPU_OK or NPU_UNSUPPORTED, got ", status_name(supported), ": ", rig.text());
    return;
  }
  command.choice = choice;
  ran.status = rig.d.submit(rig.stream, &command);
  command.choice = 0;
  ran.supported = ran.status != NPU_UNSUPPORTED;
  if (supported == NPU_UNSUPPORTED && ran.status == NPU_OK)
    ran.failed = "supports said NPU_UNSUPPORTED, but submit took the command";
}

void Case::judge(Rig& rig, Ran& ran) {
  const char* where = "submit";
  ran.text = ran.status == NPU_OK ? "" : rig.text();
  if (ran.status == NPU_OK) {
    where = "stream_synchronize";
    ran.status = rig.d.stream_synchronize(rig.stream);
    if (ran.status != NPU_OK) ran.text = rig.text();
  }
  View expected = *this;
  std::string error;
  ran.expected = expected.run_reference(&error);
  if (ran.status != ran.expected) {
    ran.failed = say(where, ": expected ", status_name(ran.expected), ran.expected ? " (" + error + ")" : "", ", got ",
                     status_name(ran.status), ran.status ? ": " + ran.text : "");
    return;
  }
  if (ran.expected != NPU_OK) return;
  ran.got = buffers;
  for (Buffer& b : ran.got)
    if (!b.bytes.empty()) b.bytes = rig.download(b.addr, b.bytes.size());
  Comparison comparison(*this, tolerance, same_nans);
  ran.want = comparison.want();
  if (checked_buffer >= 0) {
    const auto n = static_cast<size_t>(checked_buffer);
    check(buffers, ran.want[n], ran.got[n]);
  }
  ran.wrong = by_budget ? judge_by_budget(ran, rig.context.exact) : comparison.judge(ran.got, checked_buffer);
  if (!ran.wrong) return;
  const Wrong& w = *ran.wrong;
  const auto text = [&](const std::vector<Buffer>& in) {
    return npu::element_text(bits_of(in[w.buffer], w.element), in[w.buffer].dtype);
  };
  ran.failed = say(place_of(w.buffer, w.element), ", ", npu::dtype_name(buffers[w.buffer].dtype), ": expected ",
                   text(ran.want), ", got ", text(ran.got), "; was ", text(buffers), " before; allowed: ", w.allowed,
                   "; ", w.count, w.count == 1 ? " element is" : " elements are", " wrong");
}

std::optional<Wrong> Case::judge_by_budget(const Ran& ran, bool exact) {
  npu::Mirror before;
  for (const Buffer& b : buffers) {
    before.add({b.addr}, std::max<uint64_t>(b.bytes.size(), 1));
    std::memcpy(before.find(b.addr, b.bytes.size()), b.bytes.data(), b.bytes.size());
  }
  npu_program_desc desc{};
  if (program) desc = program->desc();
  const npu_program_desc* text = program ? &desc : nullptr;
  std::vector<npu::Written> written;
  std::vector<size_t> places_of_written;
  for (const npu::Region& region :
       npu::footprint(command, text, [&](npu_addr addr) { return before.allocation(addr); })) {
    for (size_t n = 0; n < buffers.size() && region.write; n++) {
      const uint64_t at = region.addr - buffers[n].addr;
      if (at >= buffers[n].bytes.size()) continue;
      const auto bytes = [&](const Buffer& b) {
        const auto* first = reinterpret_cast<const std::byte*>(b.bytes.data() + at);
        return std::vector<std::byte>(first, first + region.size);
      };
      written.push_back({region, bytes(ran.want[n]), bytes(ran.got[n])});
      places_of_written.push_back(n);
    }
  }
  const npu::Verdict verdict = npu::judge(command, text, before, written, {exact ? npu::Exact::kYes : npu::Exact::kNo});
  if (verdict.differing == 0) return std::nullopt;
  const npu::Element& first = verdict.first.front();
  const size_t n = places_of_written[verdict.written];
  return Wrong{n, places[written[verdict.written].region.operand].offset + first.offset,
               static_cast<int64_t>(verdict.differing), verdict.allowed};
}

Ran Case::attempt(Rig& rig) {
  Ran ran;
  npu_program* handle = nullptr;
  if (program) {
    const npu_program_desc desc = program->desc();
    if (std::string broken = npu::validate(desc); !broken.empty())
      throw std::logic_error("the suite made a bad program: " + broken + "\n" + describe());
    ran.status = rig.d.program_create(rig.device, &desc, &handle);
    ran.supported = ran.status != NPU_UNSUPPORTED;
    if (ran.status != NPU_OK) {
      ran.text = rig.text();
      if (ran.supported) ran.failed = say("program_create: ", status_name(ran.status), ": ", ran.text);
      return ran;
    }
  }
  for (Buffer& b : buffers) {
    b.addr = rig.alloc(std::max<uint64_t>(b.bytes.size(), 1));
    if (!b.bytes.empty()) rig.upload(b.addr, b.bytes);
  }
  launch(rig, handle, ran);
  if (handle) rig.d.program_destroy(handle);  // while the command may still be queued
  command.program = nullptr;
  try {
    if (ran.supported && ran.failed.empty()) judge(rig, ran);
  } catch (const Failed& e) {
    ran.failed = e.text;
  }
  for (const Buffer& b : buffers) rig.d.memory_free(rig.device, b.addr);
  return ran;
}

std::string Case::place_of(size_t buffer, int64_t element) const {
  std::string out;
  for (size_t k = 0; k < places.size(); k++) {
    if (places[k].buffer != static_cast<int>(buffer)) continue;
    const int64_t offset = element - places[k].offset;
    int64_t point[NPU_MAX_RANK] = {};
    View copy = *this;
    copy.link();
    out += say(out.empty() ? "operand " : " and operand ", k);
    if (operands[k].limit)
      out += say(" at offset ", offset);
    else if (npu::element_point(copy.command, static_cast<uint32_t>(k), offset, point))
      out += say(" at ", npu::list_text(point, command.rank));
    else
      out += say(", which no point of the index space touches (", offset, " elements from its address)");
  }
  return out;
}

std::string Case::describe() const {
  std::string out = say("  ", npu::command_name(command.kind), " size ", npu::list_text(command.size, command.rank));
  if (command.inner_rank) out += say(", the last ", int{command.inner_rank}, " inner");
  if (command.kind == NPU_MATMUL)
    out += say(", k ", command.u.matmul.k, ", acc ", npu::dtype_name(command.u.matmul.acc_dtype));
  if (command.kind == NPU_SORT)
    out += say(", count ", command.u.sort.count, command.u.sort.descending ? ", descending" : ", ascending",
               command.u.sort.stable ? ", stable" : "");
  if (command.kind == NPU_CONV) {
    const npu_conv& c = command.u.conv;
    const int n = static_cast<int>(c.spatial_rank);
    out += say(", mode ", c.mode, ", batch ", c.batch, ", channels ", c.in_channels, " -> ", c.out_channels,
               ", groups ", c.groups, ", in ", npu::list_text(c.in_size, n), ", out ", npu::list_text(c.out_size, n),
               ", kernel ", npu::list_text(c.kernel, n), ", stride ", npu::list_text(c.stride, n), ", padding ",
               npu::list_text(c.padding, n), ", dilation ", npu::list_text(c.dilation, n), ", acc ",
               npu::dtype_name(c.acc_dtype));
  }
  for (size_t i = 0; i < operands.size(); i++) {
    const npu_operand& o = operands[i];
    out += say("\n  operand ", i, ": ", npu::dtype_name(o.dtype));
    if (o.flags & NPU_OPERAND_IMMEDIATE)
      out += say(" immediate ", hex(o.addr));
    else
      out += say(" strides ", npu::list_text(o.stride, command.rank), " at ", hex(o.addr), " (element ",
                 places[i].offset, " of a buffer of ", buffers[static_cast<size_t>(places[i].buffer)].elements, ")");
    if (o.limit) out += say(", limit ", o.limit);
  }
  for (size_t i = 0; i < params.size(); i++)
    out += say("\n  param ", i, ": ", params[i].i, " as an integer, ", params[i].f, " as a float");
  if (program) out += "\n" + npu::to_text(program->desc());
  return out;
}

}  // namespace driver_test
