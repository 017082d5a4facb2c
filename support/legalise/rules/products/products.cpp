// MATMUL and CONV from less than they are.
#include <algorithm>

#include "support/legalise/draft/writer.h"
#include "support/legalise/rules/parts.h"
#include "support/legalise/rules/products/contraction.h"
#include "support/program/operand_shape.h"

namespace npu::legalise {
namespace {

uint8_t& acc_dtype(npu_command& command) {
  return command.kind == NPU_MATMUL ? command.u.matmul.acc_dtype : command.u.conv.acc_dtype;
}
int acc_dtype(const npu_command& command) {
  return command.kind == NPU_MATMUL ? command.u.matmul.acc_dtype : command.u.conv.acc_dtype;
}

bool product_then_program(const Draft& refused, Script& script) {
  if (!refused.program) return false;
  const int type = acc_dtype(refused.command);
  const Operand sums = script.scratch(type, refused.size());
  Draft product = refused;
  product.program = nullptr;
  product.params.clear();
  product.operands = {refused.operands[0], refused.operands[1], sums};
  script.add(product);

  Draft map(NPU_MAP, refused.size());
  Writer writer(refused, map);
  const auto& instrs = refused.program->instrs;
  for (uint16_t id = 0; id < instrs.size(); ++id) {
    if (instrs[id].op == NPU_OP_ACC) writer.provide(id, writer.load(sums, type));
    // In its place: a store behind it may be to the same element.
    if (instrs[id].op == NPU_OP_LOAD || instrs[id].op == NPU_OP_LOAD_AT) writer.value(id);
    if (instrs[id].op == NPU_OP_STORE) writer.sink(id);
  }
  writer.finish(refused.program->name);
  script.add(map);
  return true;
}

uint8_t& flags(npu_command& command) {
  return command.kind == NPU_MATMUL ? command.u.matmul.flags : command.u.conv.flags;
}

bool in_full_precision(const Draft& refused, Script& script) {
  Draft full = refused;
  if (!(flags(full.command) & NPU_MATMUL_REDUCED)) return false;
  flags(full.command) &= static_cast<uint8_t>(~NPU_MATMUL_REDUCED);
  script.add(full);
  return true;
}

bool with_narrow_sums(const Draft& refused, Script& script) {
  if (refused.program || acc_dtype(refused.command) != NPU_I64) return false;
  const int result = refused.operands[2].form.dtype;
  if (result == NPU_BOOL || result >= NPU_F16 || dtype_size(result) > 4) return false;
  Draft narrow = refused;
  acc_dtype(narrow.command) = NPU_I32;
  script.add(narrow);
  return true;
}

bool product_then_conversion(const Draft& refused, Script& script) {
  const int type = acc_dtype(refused.command);
  if (refused.program || refused.operands[2].form.dtype == type) return false;
  Draft product = refused;
  product.operands[2] = script.scratch(type, refused.size());
  script.add(product);
  script.add(copy(refused.size(), refused.operands[2], product.operands[2]));
  return true;
}

// An input of the product, copied to scratch of another type.
Operand converted(const Draft& product, uint32_t input, int type, Script& script) {
  const Operand& from = product.operands[input];
  std::vector<int64_t> shape(NPU_MAX_RANK);
  operand_shape(product.command, input, shape.data());
  shape.resize(product.command.rank);
  for (size_t d = 0; d < shape.size(); ++d)
    if (from.form.stride[d] == 0) shape[d] = std::min<int64_t>(shape[d], 1);  // one, which is walked again
  Operand to = script.scratch(type, shape);
  for (size_t d = 0; d < shape.size(); ++d)
    if (from.form.stride[d] == 0) to.form.stride[d] = 0;
  script.add(copy(shape, to, from));
  return to;
}

// Of every input that is not of the sums' type already.
template <bool Floats>
bool of_converted(const Draft& refused, Script& script) {
  const int type = acc_dtype(refused.command);
  if ((type == NPU_F32 || type == NPU_F64) != Floats) return false;
  Draft product = refused;
  for (uint32_t k = 0; k < 2; ++k)
    if (product.operands[k].form.dtype != type) product.operands[k] = converted(refused, k, type, script);
  if (script.drafts.empty()) return false;
  script.add(product);
  return true;
}

// The greatest magnitude of a type of eight bits; 0: of another.
int64_t magnitude(int dtype) {
  return dtype == NPU_BOOL ? 1 : dtype == NPU_U8 ? 255 : dtype == NPU_I8 ? 128 : 0;
}

template <int Type>
bool in_floats(const Draft& refused, Script& script) {
  constexpr int64_t kExact = int64_t{1} << 24;  // sums of f32 are exact up to here, in every order
  constexpr int64_t kMostPieces = 32;           // each is an operand of the MAP
  const int acc = acc_dtype(refused.command);
  const int64_t greatest = magnitude(refused.operands[0].form.dtype) * magnitude(refused.operands[1].form.dtype);
  const int64_t terms = refused.command.u.matmul.k;
  if (refused.program || (acc != NPU_I32 && acc != NPU_I64) || !greatest || !terms) return false;
  const int64_t length = std::min(kExact / greatest, terms);
  if (terms > kMostPieces * length) return false;
  Draft product = refused;
  product.command.u.matmul.acc_dtype = NPU_F32;
  for (uint32_t k = 0; k < 2; ++k) product.operands[k] = converted(refused, k, Type, script);
  const int m = refused.command.rank - 2, n = m + 1;
  const int64_t a = product.operands[0].form.stride[n], b = product.operands[1].form.stride[m];

  Draft map(NPU_MAP, refused.size());
  Writer writer(refused, map);
  uint16_t sum = writer.zero(acc);
  for (int64_t from = 0; from < terms; from += length) {
    Draft piece = product;
    piece.command.u.matmul.k = std::min(length, terms - from);
    piece.operands[0] = product.operands[0].moved(from * a);
    piece.operands[1] = product.operands[1].moved(from * b);
    piece.operands[2] = script.scratch(NPU_F32, refused.size());
    script.add(piece);
    sum = writer.emit(NPU_OP_ADD, acc, sum, writer.load(piece.operands[2], acc));
  }
  writer.store(refused.operands[2], sum);
  writer.finish("sum of sums");
  script.add(map);
  return true;
}

template <int MostRank, int MostBatch>
bool as_products(const Draft& refused, Script& script) {
  if (refused.program || refused.command.rank <= MostBatch + 2) return false;
  return add_products(contraction_of(refused), script, {MostRank, MostBatch});
}

bool as_reduce(const Draft& refused, Script& script) {
  return !refused.program && add_reduce(contraction_of(refused), script);
}

bool as_rows(const Draft& refused, Script& script) {
  if (refused.program) return false;
  Contraction c = contraction_of(refused);
  return points(c.kept) && points(c.summed) && lay_out(c, script, Inner::kSummed) && add_reduce(std::move(c), script);
}

template <int Terms>
bool as_maps(const Draft& refused, Script& script) {
  return !refused.program && add_maps(contraction_of(refused), script, Terms);
}

bool as_columns(const Draft& refused, Script& script) {
  if (refused.program) return false;
  Contraction c = contraction_of(refused);
  return points(c.kept) && points(c.summed) && lay_out(c, script, Inner::kOwn) && add_maps(std::move(c), script, 24);
}

constexpr uint32_t kMatmul = for_kind(NPU_MATMUL);

constexpr Rule kRules[] = {
    {.name = "product in full precision",
     .why = "a command that allows rounded inputs does not ask for them",
     .price = Price::kCalls,
     .kinds = kProducts,
     .repeats = false,
     .make = in_full_precision},
    {.name = "product with narrow sums",
     .why = "integers wrap: the low bits of a sum are those of the low bits",
     .price = Price::kCalls,
     .kinds = kProducts,
     .repeats = false,
     .make = with_narrow_sums},
    {.name = "product, then its program",
     .why = "an epilogue runs on finished sums: they lie in scratch, in the type in which they were made",
     .price = Price::kPass,
     .kinds = kProducts,
     .repeats = false,
     .make = product_then_program},
    {.name = "product, then its conversion",
     .why = "a sum is complete before it is stored: it lies in scratch, in the type in which it was made",
     .price = Price::kPass,
     .kinds = kProducts,
     .repeats = false,
     .make = product_then_conversion},
    {.name = "product of converted inputs",
     .why = "elements are converted to the type of the sums before they are multiplied: here by COPY",
     .price = Price::kPass,
     .kinds = kProducts,
     .repeats = false,
     .make = of_converted<true>},
    {.name = "product of at most three dimensions",
     .why = "batch dimensions are walked as one, or as rows or columns, where strides or a COPY allow it; others are a "
            "command for each element",
     .price = Price::kPass,
     .kinds = kMatmul,
     .repeats = false,
     .make = as_products<4, 1>},
    {.name = "product of two dimensions",
     .why = "a batch is a command for each of its elements",
     .price = Price::kPasses,
     .kinds = kMatmul,
     .repeats = false,
     .make = as_products<2, 0>},
    {.name = "integer product, in f32",
     .why = "f32 is exact for integers of 24 bits: so many terms at a time that no sum has more",
     .price = Price::kPass,
     .kinds = kMatmul,
     .repeats = false,
     .make = in_floats<NPU_F32>},
    {.name = "integer product, in bf16",
     .why = "bf16 is exact for integers of eight bits, and its sums are f32",
     .price = Price::kPass,
     .kinds = kMatmul,
     .repeats = false,
     .make = in_floats<NPU_BF16>},
    {.name = "integer product of converted inputs",
     .why = "elements are converted to the type of the sums before they are multiplied: here by COPY",
     .price = Price::kPasses,
     .kinds = kProducts,
     .repeats = false,
     .make = of_converted<false>},
    {.name = "product, as REDUCE of rows",
     .why = "it is a sum of products; what is summed is laid out beside each other where that is used often",
     .price = Price::kLast,
     .kinds = kMatmul,
     .repeats = false,
     .make = as_rows},
    {.name = "product, as sums of rows in MAPs",
     .why = "a term of the sum is a pair of operands that begin elsewhere; rows are laid out where they are used often",
     .price = Price::kLast,
     .kinds = kMatmul,
     .repeats = false,
     .make = as_columns},
    {.name = "product, as REDUCE",
     .why = "it is a sum of products",
     .price = Price::kLast,
     .kinds = kMatmul,
     .repeats = false,
     .make = as_reduce},
    {.name = "product, as sums in MAPs",
     .why = "a term of the sum is a pair of operands that begin elsewhere",
     .price = Price::kLast,
     .kinds = kMatmul,
     .repeats = false,
     .make = as_maps<24>},
    {.name = "product, as sums in smaller MAPs",
     .why = "a term of the sum is a pair of operands that begin elsewhere: here three at a time",
     .price = Price::kLast,
     .kinds = kMatmul,
     .repeats = false,
     .make = as_maps<3>},
};

}  // namespace

const std::span<const Rule> product_rules = kRules;

}  // namespace npu::legalise
