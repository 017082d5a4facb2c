# npu_hardware: everything above the board, for every driver of this NPU (rtl, fpga). Needs no simulator.
include_guard(GLOBAL)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(NPU_HARDWARE "${CMAKE_BINARY_DIR}/hardware" CACHE INTERNAL "npu_pkg.sv and npu_hw.h, made of rtl/npu.toml")
add_custom_command(OUTPUT "${NPU_HARDWARE}/npu_pkg.sv" "${NPU_HARDWARE}/npu_hw.h"
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_SOURCE_DIR}/codegen/hardware.py" "${CMAKE_SOURCE_DIR}/rtl/npu.toml" "${NPU_HARDWARE}"
  DEPENDS "${CMAKE_SOURCE_DIR}/rtl/npu.toml" "${CMAKE_SOURCE_DIR}/codegen/hardware.py")

# simulator/ is the simulated board and the driver around it.
file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/drivers/rtl/*.cpp")
list(FILTER sources EXCLUDE REGEX "/simulator/")
add_library(npu_hardware OBJECT ${sources} "${NPU_HARDWARE}/npu_hw.h")
target_link_libraries(npu_hardware PUBLIC npu_common npu_support npu_driver_base)
target_include_directories(npu_hardware PUBLIC "${CMAKE_SOURCE_DIR}" "${NPU_HARDWARE}")
# The model of packets follows the page bit by bit.
target_compile_options(npu_hardware PRIVATE -ffp-contract=off)
