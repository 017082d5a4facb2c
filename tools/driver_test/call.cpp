#include "tools/driver_test/call.h"

#include <cstdio>
#include <cstdlib>
#include <map>

namespace driver_test {

const char* const help =
    "usage: npu-driver-test <name-or-path>[:options] [flags]\n"
    "  <name>          libnpu_<name>.so beside this program; a path has a '/' or ends in .so\n"
    "  --filter TEXT   only tests whose name has TEXT\n"
    "  --seed N        of the random commands (default 1)\n"
    "  --count N       random commands per test, and at most so many of a test's directed ones (default 200)\n"
    "  --case N        of each test, only the command with this number: what a failure prints\n"
    "  --random N      instead of the tests: N random commands of all sorts, mixed; --filter chooses sorts\n"
    "  --supported     with --random: until N commands were compared, not counting those that the driver does not "
    "have\n"
    "  --save FILE     with --random: a command that fails is written there, for npu-replay\n"
    "  --from FILE     instead of the tests: each command of a recording (.npt), against the reference\n"
    "  --exact         floating point must agree bit for bit with the reference, functions and NaNs included\n"
    "  --exact-sums    so must sums and products; functions that isa.md lets a driver approximate, and NaNs, need not\n"
    "  --legalised     what the driver refuses is made from what it takes, as the host does it; --why prints how\n"
    "  --limit SECONDS a test fails when no call to the driver has returned for so long (default 120)\n"
    "  --jobs N        tests at the same time, each in a process of its own (default 1)\n"
    "  --in-process    all tests in this process, for a debugger: then a crash ends the suite and nothing ends a hang\n"
    "  --first         stop at the first test that fails\n"
    "  --log FILE      every test, seed and command is on the disk before the driver gets it\n"
    "  --list          print the names of the tests\n"
    "  --json FILE     write the results there too\n"
    "exit code: 0 if nothing failed, 1 if a test failed, 2 if the driver could not be loaded or the call was wrong,\n"
    "3 if the driver crashed or hung in a test\n";

void stop(const std::string& text) {
  std::fflush(stdout);
  std::fprintf(stderr, "npu-driver-test: %s\n", text.c_str());
  std::exit(2);
}

namespace {

// The words behind the program's name, taken one after the other.
class Words {
 public:
  Words(int count, char** words) : count_(count), words_(words) {}
  bool more() const { return next_ < count_; }
  std::string take() { return words_[next_++]; }
  std::string value(const std::string& flag, const char* what) {
    if (!more()) stop(say("expected ", what, " after ", flag));
    return take();
  }
  int64_t number(const std::string& flag, int64_t least) {
    const std::string text = value(flag, "a number");
    char* end = nullptr;
    const int64_t number = std::strtoll(text.c_str(), &end, 0);
    if (*end || end == text.c_str()) stop(say("expected a number after ", flag, ", got '", text, "'"));
    if (number < least) stop(say("expected a number of ", least, " or more after ", flag, ", got ", number));
    return number;
  }

 private:
  int count_, next_ = 1;
  char** words_;
};

}  // namespace

Call read_call(int argc, char** argv) {
  Call call;
  Context& context = call.context;
  const std::map<std::string, bool*> switches = {{"--list", &call.list},
                                                 {"--legalised", &call.legalised},
                                                 {"--why", &call.why},
                                                 {"--in-process", &call.in_process},
                                                 {"--first", &call.first},
                                                 {"--exact", &context.exact},
                                                 {"--exact-sums", &context.exact_sums},
                                                 {"--supported", &context.supported}};
  const std::map<std::string, std::string*> texts = {{"--filter", &call.filter},
                                                     {"--json", &call.json},
                                                     {"--save", &call.save},
                                                     {"--log", &call.log},
                                                     {"--from", &call.from}};
  Words words(argc, argv);
  while (words.more()) {
    const std::string word = words.take();
    if (word == "--help" || word == "-h") {
      std::fputs(help, stdout);
      std::exit(0);
    } else if (const auto known = switches.find(word); known != switches.end()) {
      *known->second = true;
    } else if (const auto known_text = texts.find(word); known_text != texts.end()) {
      *known_text->second = words.value(word, "a text");
    } else if (word == "--seed") {
      context.seed = static_cast<uint64_t>(words.number(word, INT64_MIN));
    } else if (word == "--count") {
      context.count = static_cast<int>(words.number(word, 1));
    } else if (word == "--case") {
      context.only = words.number(word, 0);
    } else if (word == "--random") {
      call.random = words.number(word, 1);
    } else if (word == "--jobs") {
      call.jobs = static_cast<int>(words.number(word, 1));
    } else if (word == "--limit") {
      call.limit = static_cast<double>(words.number(word, 1));
    } else if (word[0] != '-' && call.driver.empty()) {
      call.driver = word;
    } else {
      std::fputs(help, stderr);
      stop("did not expect '" + word + "'");
    }
  }
  call.legalised |= call.why;
  call.context.legalised = call.legalised;
  return call;
}

}  // namespace driver_test
