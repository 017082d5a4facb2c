#include "drivers/cmodel/conv/epilogue.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "drivers/cmodel/conv/tuning.h"
#include "drivers/cmodel/engine/one_instruction.h"
#include "drivers/cmodel/interpreter/interpreter.h"
#include "drivers/cmodel/plan/channels.h"
#include "drivers/cmodel/product/kernels/micro.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {
namespace {

// dim 1 is the channel.
bool is_by_channel(const npu_command& command, const Operand& operand) {
  if (operand.immediate) return true;
  for (int d = 0; d < command.rank; ++d)
    if (d != 1 && command.size[d] > 1 && operand.stride[d] != 0) return false;
  return true;
}

}  // namespace

Epilogue::Epilogue(const Job& given) : job_(given) {
  const npu_command& command = given.command;
  operands_.assign(given.operands, given.operands + command.operand_count);
  compute_channels(given);
  job_.operands = operands_.data();
  if (job_.program->plan->narrow) job_.program = job_.program->plan->narrow.get();
  Job lifted;
  job_.program = with_plan(job_, lifted).program;
  const Plan& plan = *job_.program->plan;
  const int spatial = command.rank - 2;
  width_ = command.size[command.rank - 1];
  flat_ = true;
  for (const Op& op : plan.ops) {
    if (op.op == NPU_OP_INDEX || op.op == NPU_OP_SIZE || op.op == NPU_OP_LOAD_AT || op.op == NPU_OP_STORE_AT)
      flat_ = false;
    if (op.step != Step::kLoad && op.step != Step::kStore) continue;
    if (op.step == Step::kStore) stored_ = op.imm;
    const bool stored = op.step == Step::kStore, loaded = !stored || op.mask != NPU_NO_VALUE;
    auto known = std::find_if(accesses_.begin(), accesses_.end(), [&](const Access& a) { return a.operand == op.imm; });
    if (known != accesses_.end()) {
      known->loaded |= loaded;
      known->stored |= stored;
      continue;
    }
    const int64_t* s = operands_[op.imm].stride;
    const int64_t z = spatial == 3 ? s[2] : 0, x = s[command.rank - 1];
    accesses_.push_back({op.imm, loaded, stored, s[0], s[1], z, x});
    if (spatial > 1 && command.size[command.rank - 2] > 1 && s[command.rank - 2] != x * width_) flat_ = false;
  }
  channels_last_ = transposes_ = flat_;
  for (const Access& access : accesses_) {
    const bool along = access.channel == 0 || access.channel == 1;
    channels_last_ &= along;
    transposes_ &= along || (operands_[access.operand].dtype == NPU_F32 && access.point == 1);
  }
  flat_operands_ = operands_;
  for (const Access& access : accesses_) {
    int64_t* s = flat_operands_[access.operand].stride;
    s[0] = access.n, s[1] = access.z, s[2] = access.channel, s[3] = access.point;
  }
  flat_job_ = job_;
  flat_job_.operands = flat_operands_.data();
  flat_job_.command.rank = 4;
  const int64_t sizes[4] = {command.size[0], spatial == 3 ? command.size[2] : 1, command.size[1],
                            spatial == 1 ? width_ : command.size[command.rank - 2] * width_};
  std::copy_n(sizes, 4, flat_job_.command.size);
  behind_ = may_run_behind();
}

// All of an image is one line in every operand, the only store is of F32, and nothing that is loaded lies where it
// goes.
bool Epilogue::may_run_behind() const {
  const npu_conv& u = job_.command.u.conv;
  const int64_t* size = flat_job_.command.size;
  int64_t taps = 1;
  for (uint32_t d = 0; d < u.spatial_rank; ++d) taps *= u.kernel[d];
  if (!flat_ || size[1] != 1 || u.acc_dtype != NPU_F32 || taps == 1) return false;
  if (size[0] * size[2] * size[3] > kNearResults && size[3] >= kFewRowPoints) return false;
  const auto range = [&](const Access& access) {
    const Operand& o = operands_[access.operand];
    const int64_t images = (size[0] - 1) * access.n, image = access.point ? size[2] * size[3] : 1,
                  log = log_size_of(o.dtype);
    return std::pair(o.ptr + (std::min<int64_t>(images, 0) << log),
                     o.ptr + ((std::max<int64_t>(images, 0) + image) << log));
  };
  const Access* to = nullptr;
  for (const Op& op : job_.program->plan->ops) {
    if (op.step != Step::kStore) continue;
    if (to || op.mask != NPU_NO_VALUE || operands_[op.imm].dtype != NPU_F32) return false;
    to = &*std::find_if(accesses_.begin(), accesses_.end(), [&](const Access& a) { return a.operand == op.imm; });
  }
  if (!to || to->loaded || to->point != 1) return false;
  const auto [begin, end] = range(*to);
  for (const Access& access : accesses_) {
    const bool same = access.channel == 0 && access.point == 0;
    if (!same && (access.point != 1 || access.channel != size[3])) return false;
    const auto [first, last] = range(access);
    if (&access != to && !operands_[access.operand].immediate && first < end && begin < last) return false;
  }
  return true;
}

void Epilogue::run_behind() const {
  const int64_t images = flat_job_.command.size[0], image = flat_job_.command.size[2] * flat_job_.command.size[3];
  std::vector<Operand> operands = operands_;
  for (const Access& access : accesses_) {
    int64_t* s = operands[access.operand].stride;
    s[0] = access.n, s[1] = 0, s[2] = access.point;
  }
  Job job = job_;
  job.operands = operands.data();
  job.command.rank = 3;
  job.command.size[0] = images, job.command.size[1] = 1, job.command.size[2] = image;
  const Operand& sums = operands[stored_];
  const int64_t lines = (image + kBlock - 1) / kBlock;
  parallel_for(images * lines, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / lines, first = i % lines * kBlock;
      const float* acc = reinterpret_cast<const float*>(sums.ptr) + n * sums.stride[0] + first;
      run_epilogue(job, &n, 0, 1, first, std::min(kBlock, image - first), acc, image, NPU_F32);
    }
  });
}

void Epilogue::compute_channels(const Job& given) {
  const npu_command& command = given.command;
  int64_t results = 1;
  for (int d = 0; d < command.rank; ++d) results *= command.size[d];
  if (results < kFewResults) return;
  const ByChannel* by_channel = given.program->plan->by_channel.get();
  uint64_t same = 0;
  for (uint32_t k = 2; k < command.operand_count; ++k)
    if (is_by_channel(command, operands_[k])) same |= uint64_t{1} << k;
  const int64_t channels = command.size[1], first = given.program->source.operand_count;
  const ByChannel::Parts* parts = by_channel && same ? by_channel->find(same) : nullptr;
  if (!parts || first != command.operand_count) return;
  values_.emplace(sizeof(float) * channels * parts->values);
  for (int k = 0; k < parts->values; ++k) {
    Operand value;
    value.ptr = value.begin = values_->as<char>() + sizeof(float) * channels * k;
    value.end = value.ptr + sizeof(float) * channels;
    value.dtype = NPU_F32;
    value.stride[1] = 1;
    operands_.push_back(value);
  }
  std::vector<Operand> lines = operands_;
  for (Operand& line : lines) line.stride[0] = line.stride[1];
  Job ahead = given;
  ahead.program = &parts->channels;
  ahead.operands = lines.data();
  ahead.command.kind = NPU_MAP;
  ahead.command.rank = 1;
  ahead.command.size[0] = channels;
  ahead.command.choice = 0;
  ahead.command.operand_count = static_cast<uint32_t>(lines.size());
  Failure failure;
  run_map(ahead, failure);
  job_.program = &parts->rest;
  job_.command.operand_count = static_cast<uint32_t>(operands_.size());
}

char* Epilogue::Access::at(const Operand& o, const Results& r, int64_t width) const {
  const int64_t first = r.n * n + r.channel * channel + r.z * z + (r.y * width + r.x) * point;
  return o.ptr + first * (int64_t{1} << log_size_of(o.dtype));
}

template <class T>
void Epilogue::run(const Results& at, const Sums<T>& sums) const {
  const int acc_dtype = job_.command.u.conv.acc_dtype;
  const auto& [acc, channel_ld, row_ld] = sums;
  if (!is_flat(at)) {
    if (job_.command.rank == 3)
      return run_epilogue(job_, &at.n, at.channel, at.channels, at.x, at.cols, acc, channel_ld, acc_dtype);
    for (int64_t c = 0; c < at.channels; ++c) {
      const int64_t outer[3] = {at.n, at.channel + c, at.z};
      run_epilogue(job_, outer, at.y, at.rows, at.x, at.cols, acc + c * channel_ld, row_ld, acc_dtype);
    }
    return;
  }
  const int64_t points = at.points();
  if (at.rows > 1 && row_ld != at.cols) {  // rows of a channel one after the other
    for (int64_t c = 0; c < at.channels; ++c)
      for (int64_t y = 1; y < at.rows; ++y)
        std::memmove(acc + c * channel_ld + y * at.cols, acc + c * channel_ld + y * row_ld, sizeof(T) * at.cols);
  }
  if constexpr (std::is_same_v<T, float>) {
    const bool few = transposes_ && points < kFewRowPoints && at.channels > points;
    if ((channels_last_ && at.channels > 1) || few) {
      product::Scratch space(sizeof(float) * points * at.channels);
      product::micro_f32().deep(acc, channel_ld, at.channels, points, at.channels, space.as<uint32_t>());
      if (run_points(at, space.as<float>(), at.channels)) return;
    }
  }
  const int64_t outer[2] = {at.n, at.z};
  run_epilogue(flat_job_, outer, at.channel, at.channels, at.y * width_ + at.x, points, acc, channel_ld, acc_dtype);
}

template void Epilogue::run<float>(const Results&, const Sums<float>&) const;
template void Epilogue::run<double>(const Results&, const Sums<double>&) const;
template void Epilogue::run<uint32_t>(const Results&, const Sums<uint32_t>&) const;
template void Epilogue::run<uint64_t>(const Results&, const Sums<uint64_t>&) const;

bool Epilogue::run_points(const Results& at, const float* sums, int64_t ld) const {
  if (!transposes_ || !is_flat(at)) return false;
  const int64_t points = at.points(), channels = at.channels;
  const product::Micro& micro = product::micro_f32();
  std::vector<Operand> operands(operands_.size());
  std::vector<std::optional<product::Scratch>> transposed(operands_.size());
  for (const Access& access : accesses_) {
    Operand& operand = operands[access.operand] = operands_[access.operand];
    if (operand.immediate) continue;
    operand.ptr = access.at(operand, at, width_);
    operand.stride[0] = access.point;
    operand.stride[1] = access.channel;
    if (access.channel == 0 || access.channel == 1) continue;
    uint32_t* space = transposed[access.operand].emplace(sizeof(float) * points * channels).as<uint32_t>();
    if (access.loaded) micro.deep(operand.ptr, access.channel, channels, points, channels, space);
    operand.ptr = operand.begin = reinterpret_cast<char*>(space);  // what masked accesses stay in
    operand.end = operand.begin + sizeof(float) * points * channels;
    operand.parts = nullptr;
    operand.stride[0] = channels;
    operand.stride[1] = 1;
  }
  Job job = job_;
  job.operands = operands.data();
  job.command.rank = 2;
  job.command.size[0] = points;
  job.command.size[1] = channels;
  run_epilogue(job, nullptr, 0, points, 0, channels, sums, ld, NPU_F32);
  for (const Access& access : accesses_) {
    if (!access.stored || !transposed[access.operand]) continue;
    char* to = access.at(operands_[access.operand], at, width_);
    for (int64_t c = 0; c < channels; c += kChannelsTogether) {
      micro.deep(transposed[access.operand]->as<float>() + c, channels, points,
                 std::min(kChannelsTogether, channels - c), access.channel,
                 reinterpret_cast<uint32_t*>(to) + c * access.channel);
    }
  }
  return true;
}

}  // namespace cmodel::conv
