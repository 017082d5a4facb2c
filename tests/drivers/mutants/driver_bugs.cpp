// Bugs that are in the driver around the commands: driver.cpp asks for each by its name.
#include "tests/drivers/mutants/mutant.h"

namespace mutant {

std::vector<Bug> driver_bugs() {
  return {
      {"keeps-params", "MAP", "params are read when the command runs", "params", nullptr},
      {"keeps-operands", "", "operands are read when the command runs", "operands", nullptr},
      {"keeps-instructions", "", "instructions are read from the caller's memory", "", nullptr},
      {"keeps-source", "copy", "an unpinned copy reads the host's memory later", "", nullptr},
      {"params-of-the-last", "MAP", "a command gets the params of the one before", "params", nullptr},
      {"program-by-name", "", "programs of one name are taken for the same", "", nullptr},
      {"program-destroyed-early", "", "a program ends while its command waits", "", nullptr},
      {"copies-overtake", "copy", "copies do not wait for the commands before them", "", nullptr},
      {"commands-overtake", "MATMUL", "MATMUL does not wait for what is before it", "order", nullptr},
      {"copy-forwards", "copy", "overlapping copies read what they have written", "", nullptr},
      {"download-returns", "copy", "an unpinned copy to the host returns too early", "", nullptr},
      {"sync-returns", "copy", "stream_synchronize does not wait", "", nullptr},
      {"destroy-drops", "destroy", "stream_destroy drops what waits", "", nullptr},
      {"device-sync-one", "device_synchronize", "device_synchronize waits for one stream", "", nullptr},
      {"query-idle", "", "stream_query says idle always", "", nullptr},
      {"wait-ignored", "event", "stream_wait_event does nothing", "", nullptr},
      {"wait-for-latest", "event", "a wait is for the latest record", "", nullptr},
      {"event-early", "event", "an event is reached when it is recorded", "", nullptr},
      {"event-sync-returns", "event", "event_synchronize does not wait", "", nullptr},
      {"event-destroy-forgets", "event", "a destroyed event orders nothing", "", nullptr},
      {"elapsed-absolute", "event_elapsed", "no time is negative", "", nullptr},
      {"failure-lost", "synchronize", "failures are not reported", "", nullptr},
      {"failure-twice", "synchronize", "a failure is reported again and again", "", nullptr},
      {"last-failure", "synchronize", "the last failure is reported, not the first", "", nullptr},
      {"failure-stops-queue", "failed command", "work behind a failure is dropped", "", nullptr},
      {"failure-of-others", "synchronize", "a stream reports the failure of another", "", nullptr},
      {"event-reports-later", "event_synchronize", "an event reports failures behind it", "", nullptr},
      {"device-sync-drops", "synchronize", "the failure of a second stream is lost", "", nullptr},
      {"reset-keeps-failures", "device_reset", "device_reset keeps failures", "", nullptr},
      {"reset-loses-events", "reset", "an event whose record was dropped is never reached", "", nullptr},
      {"error-text-empty", "error_text", "errors have no text", "", nullptr},
      {"error-text-shared", "error_text", "threads share the text of errors", "", nullptr},
      {"error-without-name", "MAP", "the text of a failure does not name its command", "", nullptr},
      {"free-any", "memory_free", "anything can be freed", "", nullptr},
      {"alloc-less", "", "half of what was asked for is there", "", nullptr},
      {"properties-whole", "device_properties", "struct_size is ignored", "", nullptr},
      {"program-unchecked", "", "a broken program is taken", "", nullptr},
      {"supports-less", "SORT", "supports refuses what submit takes", "", nullptr},
      {"crashes", "CONV", "a CONV ends the process", "", nullptr},
      {"hangs", "SCAN", "a SCAN never ends", "", nullptr},
  };
}

}  // namespace mutant
