// Precompiled for every file of csrc: what nearly all of them need, and nothing that changes often.
#pragma once
#include <ATen/Context.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>
#include <torch/library.h>
