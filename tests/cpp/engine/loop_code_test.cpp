// The code of compiled loops: that there is any, with more values than registers, at the end of memory, and where the
// system allows none.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "drivers/cmodel/jit/jit.h"
#include "drivers/cmodel/simd/isa_level.h"
#include "tests/cpp/engine/loop_case.h"

using namespace engine_test;

TEST(processors_with_avx2_have_compiled_loops) {
  const char* wish = std::getenv("NPU_CMODEL_JIT");
  const bool off = cmodel::isa_level() == cmodel::IsaLevel::kBase || (wish && std::strcmp(wish, "off") == 0);
  if (cmodel::can_compile() == off) fail(off ? "expected no loops" : "expected loops");
}

namespace {

// `count` values that are all read again at the end, BOOL ones and functions among them.
std::string wide_program(int count) {
  std::string text = "program wide(x, out)\neach:\n  %x = load x : f32\n  %s = add %x, %x\n  %v0 = mul %s, %x\n";
  const auto add = [&](const char* name, int i, const std::string& what) {
    text += std::string("  %") + name + std::to_string(i) + " = " + what + "\n";
  };
  const auto last = [](const char* name, int i) { return std::string("%") + name + std::to_string(i - 1); };
  for (int i = 1; i < count; ++i) {
    add("v", i, (i % 9 == 8 ? "tanh " : "add %x, ") + last("v", i));
    if (i % 7 == 3) add("b", i, "lt %x, " + last("v", i));
  }
  text += "  %t0 = sub %v0, %v" + std::to_string(count - 1) + "\n";
  for (int i = 1; i < count; ++i) {
    const std::string v = "%v" + std::to_string(i), both = last("t", i) + ", " + v;
    add("t", i, i % 7 == 3 ? "where %b" + std::to_string(i) + ", " + both : "max " + both);
  }
  return text + "  store out, %t" + std::to_string(count - 1) + "\n";
}

}  // namespace

TEST(a_program_with_more_values_than_registers_in_compiled_loops) {
  for (const int count : {8, 11, 14, 17, 25, 30, 35, 50})
    for (const int64_t n : {5, 13, 5000}) {
      Case k(NPU_MAP, {n});
      k.add(k.block(values(n, 5)), NPU_F32, {1});
      k.add(k.block(n, NPU_F32), NPU_F32, {1});
      k.with(wide_program(count).c_str());
      expect(k, std::to_string(count) + " values", {5e-7, 1e-38});
      if (!cmodel::can_compile()) continue;
      if (cmodel::make_plan(k.program)->loops.size() != 1) fail("expected one loop for " + std::to_string(count));
    }
}

// Operands end where memory does: a loop that reads or writes too much does not survive it.
TEST(compiled_loops_at_the_end_of_memory) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto make = [&] {
    char* at = static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (at == MAP_FAILED || mprotect(at + page, page, PROT_NONE) != 0) fail("expected memory");
    return at;
  };
  const npu::Program program = npu::parse(
      "program p(x, flag, out, chosen)\neach:\n  %x = load x : f32\n  %f = load flag : bool\n  %a = add %x, %x\n"
      "  %b = where %f, %a, %x\n  %c = not %f\n  store out, %b\n  store chosen, %c\n");
  const auto plan = cmodel::make_plan(program);
  if (plan->loops.empty()) return;
  char* block[4] = {make(), make(), make(), make()};
  for (const cmodel::Storage storage : {cmodel::kOwn, cmodel::kBFloat, cmodel::kHalf})
    for (int64_t n = 1; n < 50; ++n) {
      const int64_t size = storage == cmodel::kOwn ? 4 : 2, sizes[4] = {size, 1, size, 1};
      cmodel::LoopArguments args{};
      for (int k = 0; k < 4; ++k) {
        args.pointer[k] = block[k] + page - n * sizes[k];
        std::memset(block[k], k == 1 ? 1 : 0, page);
        args.step[k] = 16 * sizes[k];
      }
      // 1 or 2 by the bits of all three formats, and -1 in front of the results.
      const uint32_t one = storage == cmodel::kOwn ? 0x3f800000u : storage == cmodel::kBFloat ? 0x3f80u : 0x3c00u;
      const uint32_t two = storage == cmodel::kOwn ? 0x40000000u : storage == cmodel::kBFloat ? 0x4000u : 0x4000u;
      for (int64_t i = 0; i < n; ++i) {
        std::memcpy(block[0] + page - (i + 1) * size, &one, static_cast<size_t>(size));
        block[1][page - 1 - i] = i % 3 == 0;
      }
      const cmodel::CompiledLoop& loop = plan->loops[0];
      const cmodel::Code* code =
          storage == cmodel::kOwn ? loop.code.get() : loop.variant(cmodel::Form::kPlain, uint64_t{storage} * 0x11);
      block[2][page - n * size - 1] = block[3][page - n - 1] = -1;
      (*code)(args, n);
      for (int64_t i = 0; i < n; ++i) {
        uint32_t got = 0;
        std::memcpy(&got, block[2] + page - (i + 1) * size, static_cast<size_t>(size));
        if (got != (i % 3 == 0 ? two : one) || block[3][page - 1 - i] != (i % 3 != 0))
          fail("point " + std::to_string(i) + " of " + std::to_string(n));
      }
      if (block[2][page - n * size - 1] != -1 || block[3][page - n - 1] != -1) fail("written before the results");
    }
  for (char* at : block) munmap(at, 2 * page);
}

TEST(narrow_numbers_have_loops_of_their_own) {
  const npu::Program program = npu::parse(
      "program p(x, out)\neach:\n  %x = load x : f32\n  %a = const 0.5 : f32\n  %b = const 0.7 : f32\n"
      "  %c = mul %x, %b\n  %d = erf %c\n  %one = const 1 : f32\n  %e = add %one, %d\n  %h = mul %x, %a\n"
      "  %g = mul %h, %e\n  store out, %g\n");
  if (!cmodel::can_compile()) return;
  const auto plan = cmodel::make_plan(program);
  if (!plan->loops.empty() || !plan->narrow) fail("expected one kernel for F32 and a loop for bf16");
}

// A system that allows no new executable memory, from here on: programs that come now are interpreted.
TEST(no_compiled_loops_where_memory_may_not_be_executed) {
#ifdef PR_SET_MDWE
  const pid_t child = fork();
  if (child == 0) {
    if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) != 0) _exit(0);  // a kernel before 6.3
    Case k(NPU_MAP, {700});
    k.add(k.block(values(700, 1)), NPU_F32, {1});
    k.add(k.block(700, NPU_F32), NPU_F32, {1});
    k.with(wide_program(8).c_str());
    const bool loops = !cmodel::make_plan(k.program)->loops.empty();
    _exit(loops ? 2 : cmodel::can_compile() ? 3 : k.compare({5e-7, 1e-38}).empty() ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) fail("a child that may not make code ended with " + std::to_string(status));
#endif
}
