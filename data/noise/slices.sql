-- The figures of a run in slices with equal settings, as noise for `cargo xtask bench-power`:
--   sqlite3 -csv -header RESULTS.db < data/noise/slices.sql | tr -d '"\r' > data/noise/slices.csv
SELECT 'slices' AS design,
       printf('%.2f', (started - min(started) OVER ()) / 1000.0) AS time_s,
       workload,
       block,
       dense_rank() OVER (PARTITION BY workload, block ORDER BY started) - 1 AS position,
       metric,
       printf('%.5g', value) AS value
FROM (SELECT trial.started_unix_ms AS started,
             json_extract(header, '$.workloads[' || workload || '].name') AS workload,
             block, metric, value
      FROM trial JOIN figure ON figure.trial = trial.id JOIN run ON run.id = trial.run
      WHERE metric IN ('transactions_per_s', 'throughput_bps', 'latency_ns_p99', 'probe_ns_p99',
                       'sut_service_demand_us'))
ORDER BY started, metric DESC;
