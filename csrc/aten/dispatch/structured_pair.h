// structured.h for ops with two outputs:
//
//   void launch(const at::Tensor& first, const at::Tensor& second, <the op's own arguments>);
//
//   structured_pair<at::meta::structured_max_pool2d_with_indices, launch>(m).functional<...>().out<...>();
#pragma once
#include <array>
#include <tuple>

#include "csrc/aten/dispatch/structured.h"

namespace torch_npu {

template <class Meta>
class Pair final : public Meta {
 public:
  Pair() = default;
  Pair(const at::Tensor& first, const at::Tensor& second) : outputs{first, second}, given_(true) {}

  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options NPU_NAMES_DECL) override {
    if (given_) {
      resize_out(outputs[index], sizes, strides, options);
    } else {
      outputs[index] = make_empty(sizes, strides, options);
    }
  }
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options NPU_NAMES_DECL) override {
    set_output_strided(index, sizes, strides, options NPU_NAMES);
  }
  const at::Tensor& maybe_get_output(int64_t index) override { return outputs[index]; }

  std::array<at::Tensor, 2> outputs;

 private:
  bool given_ = false;
};

template <class Meta, auto Launch, class Op, class Schema>
struct PairCalls;

template <class Meta, auto Launch, class Op, class R, class... Args>
struct PairCalls<Meta, Launch, Op, R(Args...)> {
  static std::tuple<at::Tensor, at::Tensor> functional(no_symint<Args>... args) {
    check_devices<Meta>(Op::name, args...);
    Pair<Meta> op;
    op.meta(args...);
    Launch(op.outputs[0], op.outputs[1], args...);
    return {std::move(op.outputs[0]), std::move(op.outputs[1])};
  }

  // The schema's last two arguments are the outputs.
  static std::tuple<at::Tensor&, at::Tensor&> out(no_symint<Args>... args) {
    check_devices<Meta>(Op::name, args...);
    auto all = std::tie(args...);
    return out_impl(all, std::make_index_sequence<sizeof...(Args) - 2>());
  }

 private:
  template <class Tuple, size_t... I>
  static std::tuple<at::Tensor&, at::Tensor&> out_impl(Tuple& all, std::index_sequence<I...>) {
    at::Tensor& first = std::get<sizeof...(I)>(all);
    at::Tensor& second = std::get<sizeof...(I) + 1>(all);
    Pair<Meta> op(first, second);
    op.meta(std::get<I>(all)...);
    Launch(first, second, std::get<I>(all)...);
    return {first, second};
  }
};

template <class Meta, auto Launch>
class structured_pair {
 public:
  explicit structured_pair(torch::Library& m) : m_(m) {}
  template <class Op>
  structured_pair& functional() {
    register_native<Op, PairCalls<Meta, Launch, Op, typename Op::schema>::functional>(m_);
    return *this;
  }
  template <class Op>
  structured_pair& out() {
    register_native<Op, PairCalls<Meta, Launch, Op, typename Op::schema>::out>(m_);
    return *this;
  }

 private:
  torch::Library& m_;
};

}  // namespace torch_npu
