// One command with the memory it needs and the results it should give, as a recording of its own.
#pragma once
#include <string>

#include "support/verify/budget.h"
#include "support/verify/trace.h"

namespace npu {

// `before` holds the memory that the command found; `want` of each Written is kept as the result.
void write_reproduction(const std::string& path, const std::string& info_json, const npu_command& command,
                        const npu_program_desc* program, Mirror& before, const std::vector<Region>& regions,
                        const std::vector<Written>& written, uint64_t number);

// The same behind others in one file: memory, program (under the command's number), command, results, and the memory's
// end.
void append_reproduction(TraceWriter& out, const npu_command& command, const npu_program_desc* program, Mirror& before,
                         const std::vector<Region>& regions, const std::vector<Written>& written, uint64_t number);

// "difference-17-aten_addmm.npt"
std::string reproduction_name(const std::string& prefix, const npu_command& command, uint64_t number);

}  // namespace npu
