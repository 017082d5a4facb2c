// GATHER and SCATTER: goes through the lanes of a vector, each of which has an address of its own. A gather asks for one
// element after the other without waiting; a scatter stores them in order. One that combines with memory loads an element,
// waits, computes and stores it, and does not look at the next one before the store has arrived.
module lane_access
  import npu_pkg::*;
(
    input  logic                       clk,
    input  logic                       rst,
    input  logic                       start,     // for one cycle; the inputs below stay until done
    input  logic                       scatter,
    input  logic                       update,    // a scatter that combines
    input  logic [     ADDR_WIDTH-1:0] base,      // of lane 0 at index 0
    input  logic [               31:0] stride,    // from lane to lane
    input  logic [                2:0] width,
    input  logic [$clog2(LANES+1)-1:0] count,
    input  logic [               31:0] index,     // of `lane`
    input  logic [               31:0] mask,
    output logic [  $clog2(LANES)-1:0] lane,
    output logic [     ADDR_WIDTH-1:0] at,
    output logic                       ask,       // for the element at `at`
    input  logic                       asked,
    input  logic                       pending,   // an answer is still to come
    input  logic                       bus_idle,
    output logic                       compute,   // for one cycle: the element has come
    output logic                       store,
    input  logic                       stored,
    output logic                       done       // for one cycle
);
  typedef enum logic [2:0] {
    IDLE,
    LANE,
    ANSWER,
    STORE,
    FINISH
  } state_t;
  state_t state;
  logic [ADDR_WIDTH-1:0] hop, far;
  logic taken, last, next;

  assign far = ADDR_WIDTH'($signed(index));
  assign at = base + hop + (width == 4 ? far << 2 : width == 2 ? far << 1 : far);
  assign taken = mask != 0;
  assign last = $bits(count)'(lane) + 1 == count;
  assign ask = state == LANE && taken && (update ? bus_idle : !scatter);
  assign store = state == STORE || (state == LANE && taken && scatter && !update);
  assign compute = state == ANSWER && !pending;
  // On to the next lane.
  assign next = (state == LANE && (!taken || (ask && asked && !update))) || (store && stored);
  assign done = state == FINISH && !pending;

  always_ff @(posedge clk) begin
    case (state)
      IDLE: if (start) state <= LANE;
      LANE: if (ask && asked && update) state <= ANSWER;
      ANSWER: if (!pending) state <= STORE;
      STORE: if (stored) state <= LANE;
      default: if (!pending) state <= IDLE;
    endcase
    if (next && last) state <= FINISH;
    if (next) begin
      lane <= lane + 1;
      hop  <= hop + ADDR_WIDTH'($signed(stride));
    end
    if (start || rst) begin
      lane <= 0;
      hop  <= 0;
    end
    if (rst) state <= IDLE;
  end
endmodule
