// The validator: every rule of docs/isa.md has a program or command here that breaks it and nothing else.
#include "tests/cpp/support/command.h"

namespace {

std::string broken(const std::string& body, const char* header = "program t(x, out; p)\n") {
  return npu::validate(npu::parse(header + body).desc());
}

// A valid program whose instruction `index` is then changed.
std::string changed(size_t index, void (*change)(npu_instr&)) {
  npu::Program program = npu::parse(
      "program t(x, out; p)\neach:\n%a = load x : f32\n%b = param p : f32\n%c = add %a, %b\nstore out, %c\n");
  EQUAL(npu::validate(program.desc()), "");
  change(program.instrs[index]);
  return npu::validate(program.desc());
}

}  // namespace

TEST(fields_of_an_instruction_are_checked) {
  CONTAINS(changed(3, [](npu_instr& i) { i.op = NPU_OP_COUNT; }), "instruction 3: expected a known instruction");
  CONTAINS(changed(3, [](npu_instr& i) { i.a = 3; }), "expected the id of an earlier instruction, got 3");
  CONTAINS(changed(3, [](npu_instr& i) { i.a = 200; }), "expected the id of an earlier instruction, got 200");
  CONTAINS(changed(3, [](npu_instr& i) { i.a = 0; }), "which defines none");
  CONTAINS(changed(3, [](npu_instr& i) { i.b = NPU_NO_VALUE; }), "expected one more argument");
  CONTAINS(changed(3, [](npu_instr& i) { i.c = 1; }), "expected fewer arguments");
  CONTAINS(changed(3, [](npu_instr& i) { i.zero = 1; }), "expected the reserved field to be 0");
  CONTAINS(changed(3, [](npu_instr& i) { i.imm = 1; }), "expected imm to be 0");
  CONTAINS(changed(3, [](npu_instr& i) { i.flags = 1; }), "expected flags to be 0");
  CONTAINS(changed(3, [](npu_instr& i) { i.dtype = NPU_BF16; }), "expected a compute type");
  CONTAINS(changed(3, [](npu_instr& i) { i.dtype = NPU_F64; }), "expected type f32, got f64");
  CONTAINS(changed(4, [](npu_instr& i) { i.dtype = NPU_F32; }), "expected no type");
  CONTAINS(changed(1, [](npu_instr& i) { i.imm = 2; }), "expected the number of an operand");
  CONTAINS(changed(2, [](npu_instr& i) { i.imm = 1; }), "expected the number of a parameter");
  CONTAINS(changed(0, [](npu_instr& i) { i.imm = 3; }), "expected each, row or combine");
  CONTAINS(changed(0, [](npu_instr& i) { i = {NPU_OP_ACC, NPU_F32, 0, 0, 0xffff, 0xffff, 0xffff, 0xffff, 0}; }),
           "expected a segment as the first instruction");
  CONTAINS(changed(4, [](npu_instr& i) { i.mask = 1; }), "expected a mask of type bool, got f32");
}

TEST(counts_and_numbers_are_limited) {
  npu::Program program = npu::parse("program t(out)\neach:\n%a = const 1 : f32\nstore out, %a\n");
  EQUAL(npu::validate(program.desc()), "");
  program.consts.resize(65);
  CONTAINS(npu::validate(program.desc()), "expected at most 64 constants, got 65");
  program.consts.clear();
  CONTAINS(npu::validate(program.desc()), "expected the number of a constant");
  program.operand_count = 65;
  CONTAINS(npu::validate(program.desc()), "expected at most 64 operands");
  npu_program_desc desc{};
  CONTAINS(npu::validate(desc), "expected struct_size");
  desc.struct_size = sizeof(desc);
  CONTAINS(npu::validate(desc), "expected at least one instruction");
  CONTAINS(broken("each:\n%a = index 8\n"), "expected a dimension below 8");
  CONTAINS(broken("each:\n%a = index 0 : f32\n"), "expected type i64 or i32");
  std::string folds = "each:\n%x = load x : f32\n";
  for (int i = 0; i < 4; ++i) folds += "fold sum %x\n";
  EQUAL(broken(folds), "");
  CONTAINS(broken(folds + "fold sum %x\n"), "at most 4 folds");
}

TEST(live_values_are_limited_to_64) {
  auto program = [](int loads) {
    std::string text = "each:\n";
    for (int i = 0; i < loads; ++i) text += "%v" + std::to_string(i) + " = load x : f32\n";
    text += "%s1 = add %v0, %v1\n";
    for (int i = 2; i < loads; ++i)
      text += "%s" + std::to_string(i) + " = add %s" + std::to_string(i - 1) + ", %v" + std::to_string(i) + "\n";
    return text + "store out, %s" + std::to_string(loads - 1) + "\n";
  };
  EQUAL(broken(program(64)), "");
  CONTAINS(broken(program(65)), "expected at most 64 live values, got 65");
}

TEST(types_of_arguments_are_checked) {
  const std::string values =
      "each:\n%f = load x : f32\n%d = load x : f64\n%i = load x : i32\n%l = load x : i64\n%b = load x : bool\n";
  EQUAL(broken(values), "");
  for (const char* line : {"%r = add %f, %d",
                           "%r = add %b, %b",
                           "%r = and %f, %f",
                           "%r = shl %b, %b",
                           "%r = exp %i",
                           "%r = isnan %i",
                           "%r = where %i, %f, %f",
                           "%r = where %b, %f, %d",
                           "%r = eq %i, %l",
                           "%r = ldexp %f, %l",
                           "%r = ldexp %i, %i",
                           "%r = load_at x, %i : f32",
                           "store_at out, %f, %i",
                           "store_at out, %b, %l, add",
                           "%r = check_index %i, %l",
                           "%r = check_index %f, %f",
                           "%r = fold sum %b",
                           "%r = fold and %f",
                           "%r = fold argmax %f, %i",
                           "%r = fold argmax %f",
                           "%r = fold welford %i",
                           "%r = fold welford %f, %f",
                           "%r = fold sum %f, %f",
                           "%r = fold custom %f",
                           "%r = philox %i, %i, %i, 0",
                           "%r = philox %l, %l, %l, 4",
                           "%r = get %f, 0 : f32",
                           "%r = bitcast %f, f32 -> i64",
                           "%r = bitcast %f, i32 -> f32",
                           "%r = bitcast %f, f32 -> i32 : i64",
                           "%r = add %f, %f : f64",
                           "%r = eq %f, %f : f32",
                           "%r = frexp_e %f : i64",
                           "%r = arg 0 : f32",
                           "yield 0, %f"})
    CHECK_NOTE(!broken(values + line + "\n").empty(), std::string("expected a refusal of: ") + line);
}

TEST(values_are_seen_where_the_page_says) {
  const std::string fold = "each:\n%x = load x : f32\n%s = fold sum %x\n";
  EQUAL(broken(fold + "row:\n%r = neg %s\neach:\n%q = add %r, %s\nstore out, %q\n"), "");
  EQUAL(broken(fold + "%g = get %s, 0\nrow:\nstore out, %g\n"), "");
  CONTAINS(broken(fold + "%q = neg %s\n"), "can see, got %2");
  CONTAINS(broken(fold + "%g = get %s, 0\n%q = neg %g\n"), "can see, got %3");
  CONTAINS(broken(fold + "row:\n%q = neg %x\n"), "can see, got %1");
  CONTAINS(broken(fold + "each:\n%q = neg %x\n"), "can see, got %1");
  CONTAINS(broken("row:\n%x = load x : f32\ncombine:\n%q = neg %x\nyield 0, %q\n"), "can see, got %1");
  const std::string scan = "each:\n%x = load x : f32\n%s = scan sum %x\n";
  EQUAL(broken(scan + "each:\nstore out, %s\n"), "");
  CONTAINS(broken(scan + "store out, %s\n"), "can see, got %2");
  CONTAINS(broken(scan + "row:\nstore out, %s\n"), "can see, got %2");
  CONTAINS(broken(fold + "%t = scan sum %x\n"), "expected only one of fold, scan and acc");
  CONTAINS(broken("row:\n%x = load x : f32\n%s = fold sum %x\n"), "expected it in an each segment");
  CONTAINS(broken("combine:\n%x = load x : f32\nyield 0, %x\n"), "only in a combine segment");
  CONTAINS(broken(fold + "row:\n%g = get %s, 1 : f32\n"), "expected a member of the tuple");
}

TEST(combine_segments_match_their_folds) {
  const std::string fold = "each:\n%x = load x : f32\n%i = index 0\n%s = fold custom %x, %i\n";
  const std::string head = "combine:\n%l = arg 0 : f32\n%r = arg 3 : i64\n";
  EQUAL(broken(fold + head + "yield 0, %l\nyield 1, %r\n"), "");
  CONTAINS(broken(fold), "expected the number of a combine segment");
  CONTAINS(broken(fold + head + "yield 0, %l\n"), "expected arg 3");
  CONTAINS(broken(fold + head + "yield 1, %r\n"), "expected a yield for members");
  CONTAINS(broken(fold + head + "yield 0, %l\nyield 0, %l\n"), "expected one yield for each member");
  CONTAINS(broken(fold + head + "yield 0, %r\nyield 1, %l\n"), "to have the type of its member");
  CONTAINS(broken(fold + "combine:\n%l = arg 0 : f32\nyield 0, %l\n"), "expected as many members");
  CONTAINS(broken(fold + "combine:\n%l = arg 0 : f32\nyield 0, %l\nyield 1, %l\n"),
           "expected the types of the combine");
  CONTAINS(broken(fold + head + "yield 0, %l\nyield 1, %r\ncombine:\n%q = arg 0 : f32\nyield 0, %q\n"),
           "expected a custom fold or scan that uses it");
}

namespace {

using harness::Command;

// A command that is right, then changed.
template <typename Change>
std::string command_error(int kind, Change change) {
  const bool product = kind == NPU_MATMUL || kind == NPU_CONV;
  const int inner = kind == NPU_REDUCE || kind == NPU_SCAN || kind == NPU_SORT ? 1 : 0;
  Command command(kind, kind == NPU_CONV ? std::vector<int64_t>{1, 2, 3} : std::vector<int64_t>{2, 3}, inner);
  const int payload = kind == NPU_SORT ? NPU_I64 : NPU_F32;
  for (int i = 0; i < 4; ++i) command.at(64, i % 2 ? payload : int{NPU_F32}, {});
  if (kind == NPU_MAP) command.with("program t(x, out)\neach:\n%x = load x : f32\nstore out, %x\n");
  if (kind == NPU_REDUCE) command.with(harness::isa_program("softmax"));
  if (kind == NPU_SCAN) command.with(harness::isa_program("cumsum"));
  if (kind == NPU_SCATTER) command.with("program t(out)\neach:\n%i = index 0\nstore_at out, %i, %i\n");
  if (product) command.with("program t(a, b, out)\neach:\n%x = acc : f32\nstore out, %x\n");
  if (kind == NPU_SORT) command.c.u.sort.count = 3;
  if (kind == NPU_MATMUL) command.c.u.matmul.acc_dtype = NPU_F32;
  if (kind == NPU_CONV) command.c.u.conv = {0, 1, 1, 4, 2, 2, {4}, {3}, {2}, {1}, {0}, {1}, NPU_F32, 0, {}};
  EQUAL_NOTE(command.check(), "", npu::command_name(kind));
  change(command);
  return command.check();
}

}  // namespace

TEST(commands_are_checked) {
  for (int kind = 0; kind < NPU_COMMAND_COUNT; ++kind) {
    CONTAINS(command_error(kind, [](Command& c) { c.c.struct_size = 8; }), "expected struct_size");
    CONTAINS(command_error(kind, [](Command& c) { c.c.rank = 9; }), "expected rank of at most 8");
    CONTAINS(command_error(kind, [](Command& c) { c.c.inner_rank = 7; }), "expected inner_rank");
    CONTAINS(command_error(kind, [](Command& c) { c.c.size[0] = -1; }), "expected 0 or more, got -1");
    CONTAINS(command_error(kind, [](Command& c) { c.operands.clear(); }), "operands, got 0");
    CONTAINS(command_error(kind, [](Command& c) { c.operands[0].dtype = 13; }), "operand 0: expected a storage type");
    CONTAINS(command_error(kind, [](Command& c) { c.operands[0].limit = -1; }), "operand 0: expected a limit");
    CONTAINS(command_error(kind, [](Command& c) { c.operands[0].flags = 2; }), "operand 0: expected known flags");
    CONTAINS(command_error(kind,
                           [](Command& c) {
                             c.operands[0].flags = NPU_OPERAND_IMMEDIATE;
                             c.operands[0].stride[0] = 1;
                           }),
             "expected strides of 0 for an immediate");
  }
  CONTAINS(command_error(NPU_COPY, [](Command& c) { c.c.size[0] = c.c.size[1] = int64_t{1} << 40; }), "2^63 points");
  CONTAINS(command_error(NPU_COPY, [](Command& c) { c.c.kind = 8; }), "expected a command kind");
  CONTAINS(command_error(NPU_MAP, [](Command& c) { c.has_program = false; }), "MAP: expected a program, got none");
  CONTAINS(command_error(NPU_COPY, [](Command& c) { c.with(harness::isa_program("add")); }), "expected no program");
  CONTAINS(command_error(NPU_COPY, [](Command& c) { c.operands[0].flags = 1; }), "expected memory to store to");
  CONTAINS(command_error(NPU_MAP, [](Command& c) { c.operands[1].flags = 1; }), "expected memory to store to");
  CONTAINS(command_error(NPU_MAP, [](Command& c) { c.with(harness::isa_program("softmax")); }), "REDUCE only, got MAP");
  CONTAINS(command_error(NPU_MAP, [](Command& c) { c.with(harness::isa_program("cumsum")); }), "SCAN only, got MAP");
  CONTAINS(command_error(NPU_REDUCE, [](Command& c) { c.with(harness::isa_program("cumsum")); }), "SCAN only");
  CONTAINS(command_error(NPU_MAP, [](Command& c) { c.with(harness::isa_program("index_add")); }), "SCATTER only");
  CONTAINS(command_error(NPU_SCATTER, [](Command& c) { c.with(harness::isa_program("add")); }), "expected a store_at");
  CONTAINS(command_error(NPU_MAP, [](Command& c) { c.with(harness::isa_program("linear_relu")); }),
           "MATMUL and CONV only");
  CONTAINS(command_error(NPU_MAP, [](Command& c) { c.with("program t(o)\neach:\n%i = index 2\nstore o, %i\n"); }),
           "expected a dimension below 2, got 2");
  CONTAINS(command_error(NPU_REDUCE, [](Command& c) { c.with("program t(o)\nrow:\n%i = index 1\nstore o, %i\n"); }),
           "expected a dimension below 1, got 1");
  CONTAINS(command_error(NPU_MAP,
                         [](Command& c) {
                           c.with(harness::isa_program("add"));
                           c.params.resize(1);
                           c.program.param_count = 2;
                         }),
           "expected 2 parameters, got 1");
  CONTAINS(command_error(NPU_MATMUL, [](Command& c) { c.c.u.matmul.k = -1; }), "expected k of 0 or more");
  CONTAINS(command_error(NPU_MATMUL, [](Command& c) { c.c.u.matmul.acc_dtype = NPU_BF16; }), "expected acc_dtype");
  CONTAINS(command_error(NPU_MATMUL, [](Command& c) { c.c.u.matmul.acc_dtype = NPU_F64; }),
           "expected acc_dtype f64, got f32");
  CONTAINS(command_error(NPU_MATMUL, [](Command& c) { c.c.u.matmul.acc_dtype = NPU_I32; }), "expected an integer type");
  CONTAINS(command_error(NPU_MATMUL, [](Command& c) { c.c.rank = 1; }), "expected rank 2 or more");
  CONTAINS(command_error(NPU_MATMUL, [](Command& c) { c.with("program t(a)\neach:\n%x = load a : f32\n"); }),
           "expected operand 2 or above in an epilogue");
  CONTAINS(command_error(NPU_CONV, [](Command& c) { c.c.size[2] = 4; }), "size of dimension 2: expected 3, got 4");
  CONTAINS(command_error(NPU_CONV, [](Command& c) { c.c.u.conv.groups = 3; }), "expected groups that divide");
  CONTAINS(command_error(NPU_CONV, [](Command& c) { c.c.u.conv.stride[0] = 0; }), "expected stride and dilation");
  CONTAINS(command_error(NPU_CONV, [](Command& c) { c.c.u.conv.mode = 3; }), "expected a convolution mode");
  CONTAINS(command_error(NPU_CONV, [](Command& c) { c.c.u.conv.spatial_rank = 2; }), "expected rank 4, got 3");
  CONTAINS(command_error(NPU_SORT, [](Command& c) { c.c.u.sort.count = 4; }), "expected a count of 0 to 3, got 4");
  CONTAINS(command_error(NPU_SORT, [](Command& c) { c.operands[3].dtype = NPU_F32; }), "expected an integer type");
}
