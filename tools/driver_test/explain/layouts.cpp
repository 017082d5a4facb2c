// Hypotheses about where operands lie: what the driver said, what memory holds, strides, sizes.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "support/program/operand_shape.h"
#include "tools/driver_test/explain/trial.h"
#include "tools/driver_test/frame/watched.h"

namespace driver_test {

namespace {

const std::vector<int64_t> tiles = {4, 8, 16, 32, 64, 128, 256};

std::vector<int64_t> shape_of(const View& view, size_t operand) {
  int64_t size[NPU_MAX_RANK] = {};
  npu::operand_shape(view.command, static_cast<uint32_t>(operand), size);
  return {size, size + view.command.rank};
}

std::vector<int64_t> row_major(const std::vector<int64_t>& size) {
  std::vector<int64_t> out(size.size());
  int64_t next = 1;
  for (size_t d = size.size(); d-- > 0; next *= std::max<int64_t>(size[d], 1)) out[d] = next;
  return out;
}

// One change of the strides of an operand; false: it does not concern it.
struct Change {
  const char* text;
  bool (*apply)(View& view, size_t operand);
};

bool to_row_major(View& view, size_t k) {
  const auto strides = row_major(shape_of(view, k));
  bool changed = false;
  for (size_t d = 0; d < strides.size(); d++) {
    int64_t& stride = view.operands[k].stride[d];
    changed |= stride != strides[d];
    stride = strides[d];
  }
  return changed;
}

bool to_positive(View& view, size_t k) {
  bool changed = false;
  for (int64_t& stride : view.operands[k].stride) changed |= stride < 0, stride = std::abs(stride);
  return changed;
}

bool to_no_gaps(View& view, size_t k) {
  int64_t& stride = view.operands[k].stride[std::max(view.command.rank - 1, 0)];
  const bool changed = view.command.rank && stride > 1;
  if (changed) stride = 1;
  return changed;
}

bool to_no_broadcast(View& view, size_t k) {
  const auto strides = row_major(shape_of(view, k));
  bool changed = false;
  for (size_t d = 0; d < strides.size(); d++) {
    int64_t& stride = view.operands[k].stride[d];
    if (stride == 0) changed = true, stride = strides[d];
  }
  return changed;
}

bool to_turned(View& view, size_t k) {
  const int rank = view.command.rank;
  if (rank < 2) return false;
  std::swap(view.operands[k].stride[rank - 1], view.operands[k].stride[rank - 2]);
  return true;
}

bool to_one_batch(View& view, size_t k) {
  bool changed = false;
  for (int d = 0; d + 2 < view.command.rank; d++)
    changed |= view.operands[k].stride[d] != 0, view.operands[k].stride[d] = 0;
  return changed;
}

// As if an address had no bits below 4 bytes.
bool to_whole_words(View& view, size_t k) {
  if (view.places[k].buffer < 0) return false;
  const int width = npu::dtype_size(view.operands[k].dtype);
  if (width >= 4) return false;
  int64_t& offset = view.places[k].offset;
  const int64_t down = offset - offset % (4 / width);
  return std::exchange(offset, down) != down;
}

const std::vector<Change>& changes() {
  static const std::vector<Change> all = {
      {"a negative stride is ignored (taken for positive)", to_positive},
      {"it is taken as row-major, with strides (N, 1)", to_row_major},
      {"a broadcast (stride 0) is ignored, the operand is read on", to_no_broadcast},
      {"the stride of the last dimension is taken for 1 (gaps are ignored)", to_no_gaps},
      {"its last two dimensions are exchanged", to_turned},
      {"only the first batch of it is used", to_one_batch},
      {"the low bits of its address are dropped (alignment)", to_whole_words}};
  return all;
}

bool movable(const Trial& trial, size_t k) {
  return !(trial.view().operands[k].flags & NPU_OPERAND_IMMEDIATE) && !trial.view().operands[k].limit;
}

}  // namespace

void suppose_status(Trial& trial) {
  const Ran& ran = trial.ran();
  if (ran.status == ran.expected) return;
  const bool address = ran.text.find("5a5a5a5a5a5a5a5a") != std::string::npos;
  if (address || ran.text.find("got 90") != std::string::npos)  // 0x5a
    trial.say_so("operands are read after submit has returned (the driver keeps the pointer)");
}

void suppose_memory(Trial& trial) {
  trial.suppose("the result is not written", trial.view().buffers);
  const Ran& ran = trial.ran();
  if (!ran.wrong) return;
  for (size_t k = 0; k < trial.view().operands.size(); k++) {
    if (movable(trial, k) || !trial.view().operands[k].addr || trial.view().operands[k].limit) continue;
    View changed = trial.view();
    changed.operands[k].addr = 0;
    trial.suppose(say("the immediate operand ", k, " is read as 0"), changed);
  }
  // Are all wrong elements ones that the command never touches?
  const size_t n = ran.wrong->buffer;
  std::vector<Buffer> want = ran.want;
  int64_t low = INT64_MAX, high = INT64_MIN;
  for (size_t k = 0; k < trial.view().operands.size(); k++) {
    if (trial.view().places[k].buffer != static_cast<int>(n) || !movable(trial, k)) continue;
    int64_t first = trial.view().places[k].offset, last = first;
    const auto size = shape_of(trial.view(), k);
    for (size_t d = 0; d < size.size(); d++)
      (trial.view().operands[k].stride[d] < 0 ? first : last) +=
          trial.view().operands[k].stride[d] * std::max<int64_t>(size[d] - 1, 0);
    low = std::min(low, first), high = std::max(high, last);
  }
  for (int64_t i = 0; i < want[n].elements && low <= high; i++)
    if (i < low || i > high) {
      const auto width = static_cast<size_t>(npu::dtype_size(want[n].dtype));
      std::memcpy(&want[n].bytes[static_cast<size_t>(i) * width], &ran.got[n].bytes[static_cast<size_t>(i) * width],
                  width);
    }
  trial.suppose("something is written outside of the operand's elements (a tile stored as a whole, or a stray write)",
                want);
}

void suppose_layouts(Trial& trial) {
  for (const Change& change : changes()) {
    View all = trial.view();
    int concerned = 0;
    for (size_t k = 0; k < trial.view().operands.size(); k++) {
      if (!movable(trial, k)) continue;
      View changed = trial.view();
      if (!change.apply(changed, k)) continue;
      const bool matmul = trial.command().kind == NPU_MATMUL && k < 2;
      trial.suppose(say(matmul ? (k ? "B, operand " : "A, operand ") : "operand ", k, ": ", change.text), changed);
      if (!trial.writes(k)) change.apply(all, k), concerned++;
    }
    if (concerned > 1) trial.suppose(say("every operand that is read: ", change.text), all);
    View whole = trial.view();
    bool any = false;
    for (size_t k = 0; k < whole.operands.size(); k++) any |= movable(trial, k) && change.apply(whole, k);
    if (any) trial.suppose(say("every operand: ", change.text), whole);
  }
}

void suppose_sizes(Trial& trial) {
  const auto with = [&](const std::string& what, auto get) {
    const int64_t n = get(trial.view().command);
    View last = trial.view();
    const_cast<int64_t&>(get(last.command)) = n - 1;
    if (n > 1) trial.suppose(say("the last element of ", what, " is missing"), last);
    for (const int64_t tile : tiles) {
      if (n <= tile || n % tile == 0) continue;
      View cut = trial.view();
      const_cast<int64_t&>(get(cut.command)) = n - n % tile;
      trial.suppose(say("the last partial tile of ", tile, " is missing in ", what), cut);
    }
  };
  const npu_command& command = trial.command();
  if (command.kind == NPU_MATMUL) with("k", [](const npu_command& c) -> const int64_t& { return c.u.matmul.k; });
  if (command.kind == NPU_SORT)
    with("the results (count)", [](const npu_command& c) -> const int64_t& { return c.u.sort.count; });
  for (int d = command.rank - 1; d >= 0; d--) {
    const std::string name = command.kind == NPU_MATMUL && d >= command.rank - 2 ? (d + 1 == command.rank ? "n" : "m")
                                                                                 : say("dimension ", d);
    with(name, [d](const npu_command& c) -> const int64_t& { return c.size[d]; });
  }
  for (int d = 0; d < command.rank; d++) {
    View one = trial.view();
    if (one.command.size[d] > 1) {
      one.command.size[d] = 1;
      trial.suppose(say("only the first element of dimension ", d, " is done"), one);
    }
  }
  if (command.rank > 4) {
    View four = trial.view();
    for (int d = 0; d < command.rank - 4; d++) four.command.size[d] = std::min<int64_t>(four.command.size[d], 1);
    trial.suppose("only the last four dimensions are walked", four);
  }
}

}  // namespace driver_test
