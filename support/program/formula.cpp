#include "support/program/formula.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "support/program/lexer.h"
#include "support/program/op_info.h"

namespace npu {
namespace {

// An expression: a number, a word, a %value, or a call with arguments.
struct Node {
  enum Kind { kNumber, kWord, kValue, kCall } kind = kWord;
  std::string text;
  std::vector<Node> args;
};

bool is_mask(const Node& node) {
  return node.kind == Node::kCall && node.text == "mask";
}

struct Statement {
  int line = 0;
  std::string target;  // "%name", an operand, or nothing for a call alone
  Node value;
  std::optional<Node> mask;
};

struct Value {
  std::string id, type;
  std::vector<std::string> members = {};  // types of what a fold or scan accumulates
};

// Instructions whose first argument is a name or a number of its own.
bool takes_name(int op) {
  return op == NPU_OP_LOAD || op == NPU_OP_LOAD_AT || op == NPU_OP_STORE_AT || op == NPU_OP_FOLD || op == NPU_OP_SCAN ||
         op == NPU_OP_INDEX || op == NPU_OP_SIZE || op == NPU_OP_ARG || op == NPU_OP_YIELD;
}

int op_of(std::string_view name) {
  for (int op = 0; op < NPU_OP_COUNT; ++op)
    if (name == op_name(op)) return op;
  return NPU_OP_COUNT;
}

bool is_type(std::string_view name) {
  for (int type = 0; type < NPU_DTYPE_COUNT; ++type)
    if (name == dtype_name(type)) return true;
  return false;
}

// -- reading --

struct Reader : Lexer {
  std::string name() {
    skip();
    size_t n = 0;
    while (n < rest.size() && (std::isalnum(static_cast<unsigned char>(rest[n])) || rest[n] == '_')) ++n;
    if (n == 0) expected("a name");
    std::string found(rest.substr(0, n));
    rest.remove_prefix(n);
    return found;
  }
  bool accept_name(std::string_view word) {
    const std::string_view before = rest;
    skip();
    if (!rest.empty() && std::isalpha(static_cast<unsigned char>(rest[0])) && name() == word) return true;
    rest = before;
    return false;
  }

  // `mask` in front of an expression; an operand may have that name, too.
  bool accept_mask() {
    const std::string_view before = rest;
    if (accept_name("mask")) {
      skip();
      const bool value =
          !rest.empty() && (std::isalpha(static_cast<unsigned char>(rest[0])) || rest[0] == '%' || rest[0] == '(');
      const std::string_view next = rest;
      if (value && !accept_name("and") && !accept_name("or")) return true;
      rest = next;
    }
    rest = before;
    return false;
  }

  static Node call(const char* op, std::vector<Node> args) { return {Node::kCall, op, std::move(args)}; }

  // Operators of one strength, from the left.
  Node chain(Node (Reader::*next)(), std::initializer_list<std::pair<const char*, const char*>> operators) {
    Node left = (this->*next)();
    for (;;) {
      const char* op = nullptr;
      for (const auto& [sign, name] : operators) {
        if (std::isalpha(static_cast<unsigned char>(*sign)) ? accept_name(sign) : accept(sign)) {
          op = name;
          break;
        }
      }
      if (!op) return left;
      Node right = (this->*next)();
      left = call(op, {std::move(left), std::move(right)});
    }
  }
  Node expression() { return chain(&Reader::conjunction, {{"or", "or"}}); }
  Node conjunction() { return chain(&Reader::negation, {{"and", "and"}}); }
  Node negation() { return accept_name("not") ? call("not", {negation()}) : comparison(); }
  Node comparison() {
    return chain(&Reader::sum, {{"==", "eq"}, {"!=", "ne"}, {"<=", "le"}, {">=", "ge"}, {"<", "lt"}, {">", "gt"}});
  }
  Node sum() { return chain(&Reader::term, {{"+", "add"}, {"-", "sub"}}); }
  Node term() { return chain(&Reader::factor, {{"*", "mul"}, {"//", "floordiv"}, {"/", "div"}, {"% ", "mod"}}); }
  Node factor() {
    if (!accept("-")) return power();
    Node node = factor();
    if (node.kind != Node::kNumber) return call("neg", {std::move(node)});
    node.text = "-" + node.text;
    return node;
  }
  Node power() {
    Node base = primary();
    return accept("**") ? call("pow", {std::move(base), factor()}) : base;
  }
  Node primary() {
    if (accept("(")) {
      Node inside = expression();
      expect(")");
      return inside;
    }
    if (accept("%")) return {Node::kValue, name(), {}};
    skip();
    if (!rest.empty() && (std::isdigit(static_cast<unsigned char>(rest[0])) || rest[0] == '.')) return number();
    Node node{Node::kWord, name(), {}};
    for (const char* constant : {"inf", "nan", "true", "false"})
      if (node.text == constant) node.kind = Node::kNumber;
    if (accept("@")) node.text += "@" + name();
    if (node.kind != Node::kWord || !accept("(")) return node;
    node.kind = Node::kCall;
    if (accept(")")) return node;
    do {
      node.args.push_back(accept_mask() ? call("mask", {expression()}) : expression());
    } while (accept(","));
    expect(")");
    return node;
  }
  Node number() {
    size_t n = 0;
    const auto in_number = [&](size_t at) {
      const char c = rest[at];
      return std::isalnum(static_cast<unsigned char>(c)) || c == '.' ||
             ((c == '-' || c == '+') && at > 0 && rest[at - 1] == 'e' && rest[1] != 'x');
    };
    while (n < rest.size() && in_number(n)) ++n;
    Node node{Node::kNumber, std::string(rest.substr(0, n)), {}};
    rest.remove_prefix(n);
    return node;
  }

  Statement statement() {
    Statement out{line, {}, {}, {}};
    const std::string_view before = rest;
    const bool value = accept("%");
    out.target = (value ? "%" : "") + name();
    skip();
    if (rest.size() < 2 || rest[0] != '=' || rest[1] == '=') {
      rest = before;
      out.target.clear();
    } else {
      accept("=");
    }
    out.value = expression();
    if (accept(",")) {
      if (!accept_mask()) expected("a mask");
      out.mask = expression();
    }
    skip();
    if (!rest.empty()) expected("an operator or the end of the line");
    return out;
  }
};

// -- writing --

class Writer {
 public:
  explicit Writer(std::string_view type) : type_(type) {}

  void header(Reader& in) {
    out_ = "program " + in.name() + "(";
    in.expect("(");
    const auto list = [&](std::map<std::string, std::string>& names) {
      do {
        const std::string name = in.name();
        out_ += (names.empty() ? "" : ", ") + name;
        names[name] = in.accept(":") ? in.name() : "";
      } while (in.accept(","));
    };
    list(operands_);
    if (in.accept(";")) {
      out_ += "; ";
      list(params_);
    }
    in.expect(")");
    if (in.accept(":")) type_ = in.name();
    out_ += ")\n";
  }

  void segment(const std::string& kind, const std::vector<Statement>& statements) {
    out_ += kind + ":\n";
    known_.clear();
    for (size_t k = 0; k < statements.size(); ++k) {
      at_ = &statements[k];
      const Statement& s = statements[k];
      if (s.target.starts_with("%")) {
        names_[s.target.substr(1)] = value(s.value, "");
        continue;
      }
      const std::string mask = s.mask ? ", mask " + value(*s.mask, "bool").id : "";
      if (!s.target.empty() && !operands_.count(s.target)) fail("expected an operand, got " + s.target);
      const std::string line = s.target.empty() ? instruction(s.value, "").first
                                                : "store " + s.target + ", " + value(s.value, type_of(s.target)).id;
      for (size_t later = k + 1; later < statements.size(); ++later) load_all(statements[later].value);
      out_ += "  " + line + mask + "\n";
    }
  }

  std::string take() { return std::move(out_); }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("line " + std::to_string(at_->line) + ": " + what);
  }
  std::string type_of(const std::string& name) const {
    const auto& names = operands_.count(name) ? operands_ : params_;
    const auto found = names.find(name);
    if (found == names.end()) fail("expected an operand, got " + name);
    return found->second.empty() ? type_ : found->second;
  }

  Value emit(const std::string& text, const std::string& type, bool pure = true) {
    if (const auto found = known_.find(text); pure && found != known_.end()) return found->second;
    const Value made{"%" + std::to_string(count_++), type};
    out_ += "  " + made.id + " = " + text + "\n";
    if (pure) known_[text] = made;
    return made;
  }

  // Loads that a later statement needs, before a store could change them.
  void load_all(const Node& node) {
    if (node.kind == Node::kWord && operands_.count(node.text)) value(node, "");
    for (size_t k = takes_name(op_of(node.text)) ? 1 : 0; k < node.args.size(); ++k) load_all(node.args[k]);
  }

  Value value(const Node& node, const std::string& wanted) {
    switch (node.kind) {
      case Node::kNumber: {
        const std::string type = wanted.empty() ? type_ : wanted;
        return emit("const " + node.text + " : " + type, type);
      }
      case Node::kValue:
        if (!names_.count(node.text)) fail("expected a value that is already defined, got %" + node.text);
        return names_[node.text];
      case Node::kWord:
        if (operands_.count(node.text))
          return emit("load " + node.text + " : " + type_of(node.text), type_of(node.text));
        if (params_.count(node.text))
          return emit("param " + node.text + " : " + type_of(node.text), type_of(node.text));
        if (node.text == "acc") return emit("acc : " + type_, type_);
        fail("expected an operand, a parameter or a value, got " + node.text);
      default:
        return is_mask(node) ? value(node.args[0], "bool") : call(node, wanted);
    }
  }

  Value call(const Node& node, const std::string& wanted) {
    const std::string target = node.text == "number" ? type_ : node.text;
    if (is_type(target) && node.args.size() == 1) {
      const Value from = value(node.args[0], target);
      return from.type == target ? from : emit("cast " + from.id + " : " + target, target);
    }
    if (node.text == "acc" && node.args.size() == 1) {
      return emit("acc : " + node.args[0].text, node.args[0].text);
    }
    if (node.text == "arg" && node.args.size() == 2) {
      return emit("arg " + node.args[0].text + " : " + node.args[1].text, node.args[1].text);
    }
    if (node.text == "via" && node.args.size() == 2) {
      return emit("cast " + value(node.args[0], "").id + " via " + node.args[1].text + " : " + type_, type_);
    }
    const auto [line, made] = instruction(node, wanted);
    Value out = emit(line, made.type, made.members.empty());
    if (!made.members.empty()) members_[out.id] = made.members;
    return out;
  }

  // The line of a call, and the type of what it defines.
  std::pair<std::string, Value> instruction(const Node& node, const std::string& wanted) {
    const int op = op_of(node.text);
    if (op == NPU_OP_COUNT || node.kind != Node::kCall) fail("expected a function of docs/isa.md, got " + node.text);
    const size_t first = takes_name(op) ? 1 : 0;
    const size_t least = std::max<size_t>(op_info(op).args + (op == NPU_OP_GET ? 1 : 0), first);
    if (node.args.size() < least) fail("expected more arguments of " + node.text);
    std::vector<std::optional<Value>> values(node.args.size());
    for (size_t k = first; k < node.args.size(); ++k)
      if (!is_word(op, k, node.args[k])) values[k] = value(node.args[k], "");
    for (size_t k = first; k < node.args.size(); ++k)
      if (node.args[k].kind == Node::kNumber && !is_literal(op, k))
        values[k] = value(node.args[k], number_type(op, k, node, values, wanted));

    std::string line = node.text;
    if (first) line += " " + node.args[0].text;
    for (size_t k = first; k < node.args.size(); ++k) {
      const bool spaced = k == 0 || (k == 1 && (op == NPU_OP_FOLD || op == NPU_OP_SCAN));
      line += spaced ? " " : ", ";
      if (is_mask(node.args[k])) line += "mask ";
      line += values[k] ? values[k]->id : node.args[k].text;
    }
    Value out = result(op, node, values, wanted);
    if (op == NPU_OP_LOAD || op == NPU_OP_LOAD_AT || op == NPU_OP_ARG) line += " : " + out.type;
    return {line, out};
  }

  static bool is_literal(int op, size_t k) { return (op == NPU_OP_GET && k == 1) || (op == NPU_OP_PHILOX && k == 3); }
  // A number, which waits for its type, or a flag.
  static bool is_word(int op, size_t k, const Node& node) {
    const bool flag = (op == NPU_OP_CHECK_INDEX && k >= 2) || (op == NPU_OP_STORE_AT && k >= 3);
    return is_literal(op, k) || node.kind == Node::kNumber || (node.kind == Node::kWord && flag);
  }
  std::string number_type(int op, size_t k, const Node& node, const std::vector<std::optional<Value>>& values,
                          const std::string& wanted) const {
    if (op == NPU_OP_LOAD_AT || (op == NPU_OP_STORE_AT && k == 2)) return "i64";
    if (op == NPU_OP_STORE_AT) return type_of(node.args[0].text);
    if (op == NPU_OP_LDEXP) return k == 1 ? "i32" : type_;
    for (size_t other = op == NPU_OP_WHERE ? 1 : 0; other < values.size(); ++other)
      if (values[other] && !is_mask(node.args[other])) return values[other]->type;
    return wanted;
  }

  Value result(int op, const Node& node, const std::vector<std::optional<Value>>& values, const std::string& wanted) {
    const auto of = [](const std::string& type) { return Value{{}, type, {}}; };
    switch (op) {
      case NPU_OP_LOAD:
      case NPU_OP_LOAD_AT:
        return of(type_of(node.args[0].text));
      case NPU_OP_INDEX:
      case NPU_OP_SIZE:
        return of("i64");
      case NPU_OP_ARG:
        return of(wanted.empty() ? type_ : wanted);
      case NPU_OP_WHERE:
        return of(values.at(1)->type);
      case NPU_OP_GET: {
        const std::vector<std::string>& members = members_[values.at(0)->id];
        const size_t member = static_cast<size_t>(node.args.at(1).text[0] - '0');
        return of(member < members.size() ? members[member] : values[0]->type);
      }
      case NPU_OP_FOLD:
      case NPU_OP_SCAN: {
        Value out = of(values.at(1)->type);
        for (size_t k = 1; k < values.size(); ++k)
          if (values[k] && !is_mask(node.args[k])) out.members.push_back(values[k]->type);
        return out;
      }
      default:
        break;
    }
    switch (op_info(op).result) {
      case Result::kBool:
        return of("bool");
      case Result::kI32:
        return of("i32");
      case Result::kI64:
        return of("i64");
      default:
        return of(values.empty() || !values[0] ? wanted : values[0]->type);
    }
  }

  std::string type_, out_;
  std::map<std::string, std::string> operands_, params_;
  std::map<std::string, Value> names_, known_;
  std::map<std::string, std::vector<std::string>> members_;  // of folds and scans, by the id
  const Statement* at_ = nullptr;
  int count_ = 0;
};

}  // namespace

std::string formula_text(std::string_view text, std::string_view type) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos || !text.substr(begin).starts_with("formula ")) return std::string(text);
  Reader in;
  Writer out(type);
  std::string kind;
  std::vector<Statement> statements;
  const auto finish = [&] {
    if (!kind.empty()) out.segment(kind, statements);
    statements.clear();
  };
  // The header may have several lines.
  const size_t closed = std::min(text.find(')'), text.size());
  std::string header(text.substr(0, text.find('\n', closed)));
  text.remove_prefix(std::min(header.size() + 1, text.size()));
  in.line = static_cast<int>(std::count(header.begin(), header.end(), '\n')) + 1;
  std::replace(header.begin(), header.end(), '\n', ' ');
  in.rest = header;
  in.accept("formula ");
  out.header(in);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    in.rest = text.substr(0, end);
    in.rest = in.rest.substr(0, in.rest.find('#'));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    ++in.line;
    in.skip();
    bool segment = false;
    for (const char* name : {"each:", "row:", "combine:"}) {
      if (!in.accept(name)) continue;
      finish();
      kind = std::string(name, std::char_traits<char>::length(name) - 1);
      segment = true;
    }
    if (segment) in.skip();
    if (!in.rest.empty()) statements.push_back(in.statement());
  }
  finish();
  return out.take();
}

}  // namespace npu
