import { expect, test } from "vitest";
import { commandFigures } from "./commandstats";

test("what INFO says of commands", () => {
  const info =
    "# Commandstats\r\ncmdstat_get:calls=10,usec=50,usec_per_call=5.00,rejected_calls=0,failed_calls=1\r\n" +
    "cmdstat_config|get:calls=1,usec=90,usec_per_call=90.00,rejected_calls=2,failed_calls=0\r\n# Latencystats\r\n" +
    "latency_percentiles_usec_get:p50=4.100,p99=9.200,p99.9=12.000\r\n";
  const found = commandFigures(info);
  expect(found.map((one) => one.name)).toEqual(["CONFIG GET", "GET"]);
  expect(found[1]).toEqual({ name: "GET", calls: 10, total: 50, mean: 5, p50: 4.1, p99: 9.2, p999: 12, rejected: 0, failed: 1 });
  expect([found[0]!.p50, found[0]!.rejected]).toEqual([null, 2]);
});
