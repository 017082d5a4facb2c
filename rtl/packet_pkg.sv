// A packet as it lies in memory (docs/isa.md, "Hardware packets"): the first line, and behind every packet but SYNC a
// second one with the strides. Operand 0 is the result, 1 to 3 are the sources a, b, c.
package packet_pkg;
  typedef struct packed {
    logic [3:0][3:0][31:0] stride;  // bytes: [operand][dimension], two's complement
    logic [3:0][63:0] addr;
    logic [3:0][31:0] size;  // of dimensions 0 to 3, 3 being the innermost
    logic [31:0] imm;
    logic [31:0] tag;
    logic [15:0] zero;
    logic [3:0][3:0] kind;  // types of the operands
    logic [15:0] flags;
    logic [7:0] op;
    logic [7:0] opcode;
  } packet_t;
endpackage
