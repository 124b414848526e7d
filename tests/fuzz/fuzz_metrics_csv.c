/* libFuzzer over CSV files of metrics: `make fuzz FUZZ_S=60`. They are read as curves, and cut as
 * by a run that continues. */
#include <stdlib.h>

#include "src/report/metrics_csv.h"
#include "tests/fuzz/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

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
    return 0;
}
