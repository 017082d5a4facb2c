// The AXI4-Lite slave: control, doorbell, status, interrupt and counters. Offsets are in npu.toml.
module registers
  import npu_pkg::*;
#(
    localparam int LINE_ADDR = ADDR_WIDTH - $clog2(LINE_BYTES)
) (
    input logic clk,
    input logic rst,

    input  logic        s_awvalid,
    output logic        s_awready,
    input  logic [ 7:0] s_awaddr,
    input  logic        s_wvalid,
    output logic        s_wready,
    input  logic [31:0] s_wdata,
    output logic        s_bvalid,
    input  logic        s_bready,
    output logic [ 1:0] s_bresp,
    input  logic        s_arvalid,
    output logic        s_arready,
    input  logic [ 7:0] s_araddr,
    output logic        s_rvalid,
    input  logic        s_rready,
    output logic [31:0] s_rdata,
    output logic [ 1:0] s_rresp,

    output logic                 enable,
    output logic                 resetting,  // units are held in reset until the bus is idle
    output logic [LINE_ADDR-1:0] ring,
    output logic [         31:0] ring_size,
    output logic [         31:0] tail,
    output logic                 irq_pin,

    input logic                  bus_idle,
    input logic                  busy,
    input logic                  matrix_busy,
    input logic                  line_read,
    input logic                  line_written,
    input logic                  irq,
    input logic                  error,
    input logic [           7:0] error_code,
    input logic [          31:0] error_tag,
    input logic [ADDR_WIDTH-1:0] error_addr,
    input logic [          31:0] head,
    input logic [          31:0] retired
);
  localparam int SHIFT = $clog2(LINE_BYTES);
  localparam logic [1:0] OKAY = 2'b00, SLVERR = 2'b10;

  logic [63:0] ring_addr, cycles, busy_cycles, matrix_cycles, reads, writes, error_wide;
  logic [31:0] irq_status, irq_enable;
  logic write, error_before;

  assign ring = ring_addr[ADDR_WIDTH-1:SHIFT];
  assign error_wide = 64'(error_addr);
  assign irq_pin = (irq_status & irq_enable) != 0;
  assign write = s_awvalid && s_wvalid && !s_bvalid;
  assign s_awready = write;
  assign s_wready = write;
  assign s_arready = !s_rvalid;

  always_ff @(posedge clk) begin
    cycles <= cycles + 1;
    busy_cycles <= busy_cycles + 64'(busy);
    matrix_cycles <= matrix_cycles + 64'(matrix_busy);
    reads <= reads + 64'(line_read);
    writes <= writes + 64'(line_written);
    error_before <= error;
    irq_status <= irq_status | (irq ? IRQ_DONE : 0) | (error && !error_before ? IRQ_ERROR : 0);
    if (resetting && bus_idle) resetting <= 0;
    if (resetting) begin
      {enable, tail, irq_status, cycles, busy_cycles, matrix_cycles, reads, writes} <= 0;
    end

    if (s_bready) s_bvalid <= 0;
    if (write) begin
      s_bvalid <= 1;
      s_bresp  <= OKAY;
      case (s_awaddr)
        REG_CONTROL: begin
          enable <= (s_wdata & CONTROL_ENABLE) != 0;
          if ((s_wdata & CONTROL_RESET) != 0) resetting <= 1;
        end
        REG_RING_LO: ring_addr[31:0] <= s_wdata;
        REG_RING_HI: ring_addr[63:32] <= s_wdata;
        REG_RING_SIZE: ring_size <= s_wdata;
        REG_TAIL: tail <= s_wdata;
        REG_IRQ_STATUS: irq_status <= irq_status & ~s_wdata | (irq ? IRQ_DONE : 0);
        REG_IRQ_ENABLE: irq_enable <= s_wdata;
        default: s_bresp <= SLVERR;
      endcase
    end

    if (s_rready) s_rvalid <= 0;
    if (s_arvalid && s_arready) begin
      s_rvalid <= 1;
      s_rresp  <= OKAY;
      case (s_araddr)
        REG_ID: s_rdata <= ID_VALUE;
        REG_VERSION: s_rdata <= VERSION;
        REG_CONTROL: s_rdata <= enable ? CONTROL_ENABLE : 0;
        REG_STATUS:
        s_rdata <= (busy ? STATUS_BUSY : 0) | (error ? STATUS_ERROR : 0) | (resetting ? STATUS_RESETTING : 0);
        REG_RING_LO: s_rdata <= ring_addr[31:0];
        REG_RING_HI: s_rdata <= ring_addr[63:32];
        REG_RING_SIZE: s_rdata <= ring_size;
        REG_TAIL: s_rdata <= tail;
        REG_HEAD: s_rdata <= head;
        REG_IRQ_STATUS: s_rdata <= irq_status;
        REG_IRQ_ENABLE: s_rdata <= irq_enable;
        REG_ERROR_CODE: s_rdata <= 32'(error_code);
        REG_ERROR_TAG: s_rdata <= error_tag;
        REG_ERROR_LO: s_rdata <= error_wide[31:0];
        REG_ERROR_HI: s_rdata <= error_wide[63:32];
        REG_CYCLES_LO: s_rdata <= cycles[31:0];
        REG_CYCLES_HI: s_rdata <= cycles[63:32];
        REG_BUSY_LO: s_rdata <= busy_cycles[31:0];
        REG_BUSY_HI: s_rdata <= busy_cycles[63:32];
        REG_MATRIX_LO: s_rdata <= matrix_cycles[31:0];
        REG_MATRIX_HI: s_rdata <= matrix_cycles[63:32];
        REG_READS_LO: s_rdata <= reads[31:0];
        REG_READS_HI: s_rdata <= reads[63:32];
        REG_WRITES_LO: s_rdata <= writes[31:0];
        REG_WRITES_HI: s_rdata <= writes[63:32];
        REG_PACKETS: s_rdata <= retired;
        default: begin
          s_rdata <= 0;
          s_rresp <= SLVERR;
        end
      endcase
    end
    if (rst) begin
      {enable, resetting, tail, irq_status, irq_enable, s_bvalid, s_rvalid} <= 0;
      {ring_addr, ring_size, error_before} <= 0;
      {cycles, busy_cycles, matrix_cycles, reads, writes} <= 0;
    end
  end
endmodule
