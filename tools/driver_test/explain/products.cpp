// Hypotheses about products, convolutions, folds, scans, sorts and scatters.
#include <algorithm>
#include <cmath>

#include "support/reference/value.h"
#include "tools/driver_test/explain/trial.h"

namespace driver_test {

namespace {

using npu::Rewrite;

float bf16(float value) {
  return npu::bf16_to_f32(npu::f32_to_bf16(value));
}

// The product of two matrices with sums that are kept in bf16.
void suppose_sums(Trial& trial) {
  const npu_command& command = trial.command();
  if (command.kind != NPU_MATMUL || command.rank != 2 || trial.view().program || command.u.matmul.acc_dtype != NPU_F32)
    return;
  std::vector<Buffer> memory = trial.view().buffers;
  const auto place = [&](size_t k, int64_t row, int64_t column) {
    const npu_operand& o = trial.view().operands[k];
    return trial.view().places[k].offset + row * o.stride[0] + column * o.stride[1];
  };
  const auto buffer = [&](size_t k) -> Buffer& { return memory[static_cast<size_t>(trial.view().places[k].buffer)]; };
  for (size_t k = 0; k < 3; k++)
    if (trial.view().places[k].buffer < 0) return;
  for (int64_t m = 0; m < command.size[0]; m++)
    for (int64_t n = 0; n < command.size[1]; n++) {
      float sum = 0;
      for (int64_t k = 0; k < command.u.matmul.k; k++)
        sum = bf16(sum + static_cast<float>(take(buffer(0), place(0, m, k))) *
                             static_cast<float>(take(buffer(1), place(1, k, n))));
      put(buffer(2), place(2, m, n), static_cast<double>(sum));
    }
  trial.suppose("acc in bf16: sums are kept in 16 bits", memory);
}

void suppose_convolutions(Trial& trial) {
  if (trial.command().kind != NPU_CONV) return;
  const auto with = [&](const char* text, auto change) {
    View changed = trial.view();
    change(changed.command.u.conv);
    trial.suppose(text, changed);
  };
  with("padding is ignored", [](npu_conv& c) { std::fill_n(c.padding, 3, 0); });
  with("dilation is ignored", [](npu_conv& c) { std::fill_n(c.dilation, c.spatial_rank, 1); });
  with("stride is ignored", [](npu_conv& c) { std::fill_n(c.stride, c.spatial_rank, 1); });
  if (trial.command().u.conv.spatial_rank > 1) {
    with("stride: the steps of two dimensions are exchanged", [](npu_conv& c) { std::swap(c.stride[0], c.stride[1]); });
    with("padding of two dimensions is exchanged", [](npu_conv& c) { std::swap(c.padding[0], c.padding[1]); });
    with("dilation of two dimensions is exchanged", [](npu_conv& c) { std::swap(c.dilation[0], c.dilation[1]); });
  }
  with("the last input channel is missing", [](npu_conv& c) { c.in_channels -= c.in_channels > 1 && c.groups == 1; });
  with("the last output channel is missing",
       [](npu_conv& c) { c.out_channels -= c.out_channels > 1 && c.groups == 1; });
  with("the last image of the batch is missing", [](npu_conv& c) { c.batch -= c.batch > 1; });
  View flipped = trial.view();
  const npu_conv& conv = trial.command().u.conv;
  for (uint32_t d = 0; d < conv.spatial_rank && conv.mode != NPU_CONV_GRAD_WEIGHT; d++) {
    int64_t& stride = flipped.operands[1].stride[d + 2];
    flipped.places[1].offset += stride * (conv.kernel[d] - 1);
    stride = -stride;
  }
  trial.suppose("the kernel is flipped (a convolution, not a cross-correlation)", flipped);
}

// A fold of a kind gets another value or mask.
void at_folds(Trial& trial, const std::string& bug, std::vector<int> kinds,
              const std::function<void(Rewrite&, npu_instr&)>& change) {
  trial.suppose(bug, [&](Rewrite& out, npu_instr in) {
    const bool fold = in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN;
    if (fold && std::find(kinds.begin(), kinds.end(), static_cast<int>(in.imm & 0xff)) != kinds.end()) change(out, in);
    return out.emit(in);
  });
}

void suppose_folds(Trial& trial) {
  const npu_command& command = trial.command();
  if (command.kind != NPU_REDUCE && command.kind != NPU_SCAN) return;
  bool empty = false, masked = false;
  for (int d = command.rank - command.inner_rank; d < command.rank; d++) empty |= command.size[d] == 0;
  for (const npu_instr& in : trial.view().program->instrs) masked |= in.op == NPU_OP_FOLD && in.mask != NPU_NO_VALUE;
  if (empty || masked)
    trial.suppose("a row without elements yields 0 instead of the identity", [&](Rewrite& out, npu_instr in) {
      if (in.op == NPU_OP_STORE) in.a = out.constant(out.type(in.a), 0);
      return out.emit(in);
    });
  for (const auto& [kind, op] : {std::pair{NPU_FOLD_MAX, NPU_OP_MAX}, {NPU_FOLD_MIN, NPU_OP_MIN}})
    at_folds(trial, say(npu::fold_name(kind), " starts at 0 instead of the identity"), {kind},
             [op = op](Rewrite& out, npu_instr& in) {
               if (in.dtype != NPU_BOOL) in.a = out.op(op, in.dtype, in.a, out.constant(in.dtype, 0));
             });
  at_folds(trial, "prod starts at 0 instead of the identity", {NPU_FOLD_PROD},
           [](Rewrite& out, npu_instr& in) { in.a = out.constant(in.dtype, 0); });
  at_folds(trial, "NaN is not handled in folds of max and min: it is left out", {NPU_FOLD_MAX, NPU_FOLD_MIN},
           [](Rewrite& out, npu_instr& in) {
             if (in.op != NPU_OP_FOLD || (in.dtype != NPU_F32 && in.dtype != NPU_F64)) return;
             const uint16_t number = out.op(NPU_OP_EQ, NPU_BOOL, in.a, in.a);
             in.mask = in.mask == NPU_NO_VALUE ? number : out.op(NPU_OP_AND, NPU_BOOL, in.mask, number);
           });
  at_folds(trial, "what is added up is rounded to bf16", {NPU_FOLD_SUM}, [](Rewrite& out, npu_instr& in) {
    if (in.dtype == NPU_F32) in.a = out.cast(in.a, NPU_F32, NPU_BF16);
  });
  std::vector<uint16_t> folds;
  trial.suppose("of equals the highest index is taken, not the lowest", [&](Rewrite& out, npu_instr in) {
    const auto kind = static_cast<int>(in.imm & 0xff);
    const bool arg =
        (in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN) && (kind == NPU_FOLD_ARGMAX || kind == NPU_FOLD_ARGMIN);
    if (arg) in.b = out.op(NPU_OP_NEG, NPU_I64, in.b);
    const uint16_t made = out.emit(in);
    if (arg) folds.push_back(made);
    const bool index = in.op == NPU_OP_GET && in.imm == 1 && std::find(folds.begin(), folds.end(), in.a) != folds.end();
    return index ? out.op(NPU_OP_NEG, NPU_I64, made) : made;
  });
}

void suppose_scans(Trial& trial) {
  if (trial.command().kind != NPU_SCAN) return;
  const int last = trial.command().rank - 1;
  const int64_t n = trial.command().size[last];
  for (const int64_t tile : {8, 16, 32, 64, 128, 256, 512}) {
    if (tile >= n) break;
    View piece = trial.view();
    for (int64_t at = 0; at < n; at += tile) {
      piece.command.size[last] = std::min(tile, n - at);
      for (size_t k = 0; k < piece.places.size(); k++)
        piece.places[k].offset = trial.view().places[k].offset + at * piece.operands[k].stride[last];
      if (piece.run_apart() != NPU_OK) return;
    }
    trial.suppose(say("the scan begins anew every ", tile, " elements"), piece.buffers);
  }
}

void suppose_sorts(Trial& trial) {
  if (trial.command().kind != NPU_SORT) return;
  const View& view = trial.view();
  View other = view;
  other.command.u.sort.descending ^= 1;
  trial.suppose(view.command.u.sort.descending ? "descending is ignored" : "ascending is sorted as descending", other);
  const int last = view.command.rank - 1;
  if (!(view.operands[1].flags & NPU_OPERAND_IMMEDIATE)) return;
  const int64_t n = view.command.size[last];
  View turned = view;  // sorted from the end, so that equal keys come the other way round
  turned.places[0].offset += (n - 1) * view.operands[0].stride[last];
  turned.operands[0].stride[last] = -view.operands[0].stride[last];
  if (n < 1 || turned.run_apart() != NPU_OK) return;
  View still = view;
  still.run_apart();
  int64_t point[NPU_MAX_RANK] = {};
  int64_t rows = 1;
  for (int d = 0; d < last; d++) rows *= view.command.size[d];
  for (int64_t row = 0; row < rows; row++) {
    int64_t rest = row, at = view.places[3].offset;
    for (int d = last - 1; d >= 0; rest /= view.command.size[d], d--) point[d] = rest % view.command.size[d];
    for (int d = 0; d < last; d++) at += point[d] * view.operands[3].stride[d];
    for (int64_t i = 0; i < view.command.u.sort.count; i++) {
      Buffer& payload = turned.buffers[static_cast<size_t>(view.places[3].buffer)];
      const int64_t element = at + i * view.operands[3].stride[last];
      put(payload, element, static_cast<double>(n - 1) - take(payload, element));
      put(still.buffers[static_cast<size_t>(view.places[3].buffer)], element, static_cast<double>(i));
    }
  }
  trial.suppose("equal keys change their order (not stable)", turned.buffers);
  trial.suppose("the payload does not move with its key", still.buffers);
}

void suppose_scatters(Trial& trial) {
  if (trial.command().kind != NPU_SCATTER) return;
  static const char* const names[] = {"set", "add", "mul", "max", "min"};
  for (int mode = 0; mode < 5; mode++)
    trial.suppose(say("store_at: ", names[mode], " instead of ", "add, mul, max or min"),
                  [&](Rewrite& out, npu_instr in) {
                    if (in.op == NPU_OP_STORE_AT && in.flags != NPU_STORE_SET) in.flags = static_cast<uint8_t>(mode);
                    return out.emit(in);
                  });
  View turned = trial.view();
  for (size_t k = 0; k < turned.operands.size(); k++)
    for (int d = 0; d < turned.command.rank; d++) {
      int64_t& stride = turned.operands[k].stride[d];
      turned.places[k].offset += stride * std::max<int64_t>(turned.command.size[d] - 1, 0);
      stride = -stride;
    }
  trial.suppose("points run in the opposite order: of several stores the first stays, not the last", turned);
}

}  // namespace

void suppose_products(Trial& trial) {
  suppose_sums(trial);
  suppose_convolutions(trial);
  const npu_command& command = trial.command();
  if (command.kind != NPU_MATMUL && command.kind != NPU_CONV) return;
  View rounded = trial.view();
  for (size_t k = 0; k < 2; k++)
    if (rounded.operands[k].dtype == NPU_F32 && rounded.places[k].buffer >= 0) {
      Buffer& b = rounded.buffers[static_cast<size_t>(rounded.places[k].buffer)];
      for (int64_t i = 0; i < b.elements; i++) put(b, i, static_cast<double>(bf16(static_cast<float>(take(b, i)))));
    }
  // The rounded inputs are not what memory holds afterwards.
  const Ran& ran = trial.ran();
  View result = rounded;
  if (ran.wrong && result.run_apart() == NPU_OK) {
    for (const size_t k : {0, 1})
      if (const int n = rounded.places[k].buffer; n >= 0)
        result.buffers[static_cast<size_t>(n)] = trial.view().buffers[static_cast<size_t>(n)];
    trial.suppose("f32 inputs are rounded to bf16 without NPU_MATMUL_REDUCED", result.buffers);
  }
  if (trial.view().program) {
    View bare = trial.view();
    bare.program.reset();
    trial.suppose("the program (epilogue) is not run", bare);
  }
}

void suppose_rows(Trial& trial) {
  suppose_folds(trial);
  suppose_scans(trial);
  suppose_sorts(trial);
  suppose_scatters(trial);
}

}  // namespace driver_test
