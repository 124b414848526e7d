/* libFuzzer over CSV files of metrics: `make fuzz FUZZ_S=60`. They are read as curves, cut as by a
 * run that continues, and made a column wider as by a log. */
#include <stdlib.h>

#include "src/report/log_csv.h"
#include "src/report/metrics_csv.h"
#include "tests/fuzz/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void add_to_log(const void *data, size_t bytes)
{
    char path[64];
    fsdp_log_csv *csv = NULL;
    fsdp_json *row;
    fuzz_put("log.csv", data, bytes);
    snprintf(path, sizeof path, "%s/log.csv", fuzz_folder());
    if (fsdp_log_csv_open(path, &csv) == FSDP_OK && fsdp_json_create("row", &row) == FSDP_OK) {
        fsdp_json_set_str(fsdp_json_root(row), "kind", "log");
        fsdp_json_set_f64(fsdp_json_root(row), "a new name", 1);
        if (fsdp_log_csv_write(csv, fsdp_json_root(row)) != FSDP_OK && !*fsdp_last_error())
            abort();
        fsdp_json_destroy(row);
    }
    fsdp_log_csv_close(csv);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    fsdp_metrics_curves curves = {0};
    fsdp_metrics_csv *csv = NULL;
    fuzz_put("m.csv", data, bytes);
    snprintf(path, sizeof path, "%s/m.csv", fuzz_folder());
    if (fsdp_metrics_csv_read(path, &curves) != FSDP_OK && !*fsdp_last_error())
        abort();
    fsdp_metrics_curves_fini(&curves);
    if (fsdp_metrics_csv_open(path, 2, &csv) != FSDP_OK && !*fsdp_last_error())
        abort();
    fsdp_metrics_csv_close(csv);
    add_to_log(data, bytes);
    return 0;
}
