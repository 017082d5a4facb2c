// Storage types in memory and 32-bit lanes: floats become f32, small integers i32, as docs/isa.md asks of a load and a
// store without a change of type.
package convert_pkg;
  import npu_pkg::*;

  // Bytes of an element.
  function automatic logic [2:0] width_of(logic [3:0] kind);
    case (kind)
      TYPE_F32, TYPE_I32: return 4;
      TYPE_BF16, TYPE_F16, TYPE_I16, TYPE_U16: return 2;
      default: return 1;
    endcase
  endfunction

  function automatic logic [31:0] load(logic [3:0] kind, logic [31:0] raw);
    case (kind)
      TYPE_BF16: return fp_pkg::from_bf16(raw[15:0]);
      TYPE_F16:  return fp_pkg::from_f16(raw[15:0]);
      TYPE_I16:  return 32'($signed(raw[15:0]));
      TYPE_U16:  return {16'b0, raw[15:0]};
      TYPE_I8:   return 32'($signed(raw[7:0]));
      TYPE_U8:   return {24'b0, raw[7:0]};
      TYPE_BOOL: return {31'b0, raw[7:0] != 0};
      default:   return raw;
    endcase
  endfunction

  function automatic logic [31:0] store(logic [3:0] kind, logic [31:0] lane);
    case (kind)
      TYPE_BF16: return {16'b0, fp_pkg::to_bf16(lane)};
      TYPE_F16:  return {16'b0, fp_pkg::to_f16(lane)};
      TYPE_BOOL: return {31'b0, lane != 0};
      default:   return lane;
    endcase
  endfunction
endpackage
