// Programs as formulas: what the host writes its own programs in. A formula is turned into the text form of
// docs/isa.md, which is what everybody else reads and writes.
//
//   formula layer_norm(out, mean, rstd, x, weight, bias; eps, n)
//   each:
//     %w = fold(welford, x)
//   row:
//     %mean = get(%w, 0)
//     %rstd = rsqrt(get(%w, 1) / n + eps)
//     mean = %mean
//     rstd = %rstd
//   each:
//     out = (x - %mean) * %rstd * weight + bias
//
// - The name of an operand is a load, that of a parameter a param; `out = value` is a store. They have the program's
//   type, unless the header says another one: `target: i64`. `%name` is a value.
// - Operators, weakest first: or, and, not, comparisons, + -, * / // %, unary -, **. Nothing is contracted or
// reordered.
// - Functions are the instructions of docs/isa.md. `i64(x)` is a cast, `number(x)` to the program's type, `via(x, f16)`
//   rounds; `acc` is the result of a product, `acc(i32)` and `arg(0, i32)` have that type. Masks and flags stand behind
//   the arguments: `load(x, mask %m)`, `store_at(out, value, offset, add)`, `check_index(i, n, wrap)`.
// - A number takes the type of what stands beside it, or the program's.
// - A segment computes equal subexpressions once, and what it loads by name, it loads before it stores.
#pragma once
#include <string>
#include <string_view>

namespace npu {

// The text form; a text that is no formula comes back as it is. `type`: the program's, unless `formula f(x, y): f64`
// says it. Throws std::invalid_argument with the line and what was expected.
std::string formula_text(std::string_view text, std::string_view type);

}  // namespace npu
