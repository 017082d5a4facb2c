"""The rules by which Perfetto reads a Chrome trace. What breaks them is dropped or drawn wrong."""

from collections import defaultdict

NUMBERS = (int, float)
ROUNDING = 0.0015  # microseconds: the file has three decimals, of a beginning and of a length


def problems(events: list[dict]) -> list[str]:
    """Every broken rule, in words; empty if Perfetto would show all of it."""
    found = []
    slices: dict[tuple, list[dict]] = defaultdict(list)
    flows: dict[tuple, dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    names: dict[str, set] = {"thread_name": set(), "process_name": set()}
    for event in events:
        phase = event.get("ph")
        if phase == "X":
            if not isinstance(event["ts"], NUMBERS) or not isinstance(event.get("dur"), NUMBERS) or event["dur"] < 0:
                found.append(f"{event['name']}: expected a beginning and a length of 0 or more, got {event}")
            else:
                slices[event["pid"], event["tid"]].append(event)
        elif phase in ("s", "t", "f"):
            flows[event["cat"], event["id"]][phase].append(event)
        elif phase == "M" and event["name"] in names:
            lane = event["pid"], event.get("tid")
            names[event["name"]].add(lane if event["name"] == "thread_name" else event["pid"])
    for lane, inside in slices.items():
        if isinstance(lane[0], str):  # a word instead of a number is its own name
            pass
        elif lane not in names["thread_name"]:
            found.append(f"lane {lane} with {len(inside)} slices has no name")
        elif lane[0] not in names["process_name"]:
            found.append(f"process {lane[0]} has no name")
        found += _crossing(lane, inside)
    for (category, number), phases in flows.items():
        if len(phases["s"]) != 1 or len(phases["f"]) != 1:
            found.append(f"arrow {category} {number}: {len(phases['s'])} beginnings and {len(phases['f'])} ends")
            continue
        start, end = phases["s"][0], phases["f"][0]
        if start["ts"] > end["ts"] + ROUNDING:
            found.append(f"arrow {category} {number} ends {start['ts'] - end['ts']:.3f} us before it begins")
        if end.get("bp") != "e":
            found.append(f'arrow {category} {number}: its end needs "bp": "e" to belong to the slice around it')
        for side in (start, end):
            around = slices.get((side["pid"], side["tid"]), [])
            if not any(s["ts"] - ROUNDING <= side["ts"] <= s["ts"] + s["dur"] + ROUNDING for s in around):
                found.append(f"arrow {category} {number}: no slice at {side['ts']} on {side['pid'], side['tid']}")
    return found


def _crossing(lane: tuple, inside: list[dict]) -> list[str]:
    """Slices of a lane lie inside each other or apart."""
    found, stack = [], []
    for event in sorted(inside, key=lambda e: (e["ts"], -e["dur"])):
        while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"] + ROUNDING:
            stack.pop()
        if stack and event["ts"] + event["dur"] > stack[-1]["ts"] + stack[-1]["dur"] + 2 * ROUNDING:
            over = event["ts"] + event["dur"] - stack[-1]["ts"] - stack[-1]["dur"]
            found.append(f"lane {lane}: {event['name']} begins in {stack[-1]['name']} and ends {over:.3f} us behind it")
        stack.append(event)
    return found
