/* libFuzzer over configuration files of Accelerate: `make fuzz FUZZ_S=60`. What can be read is
 * explained, converted and printed; the print can be read, and prints the same again. */
#include <stdlib.h>
#include <string.h>

#include "src/accelerate/explain.h"
#include "src/accelerate/to_fsdp2.h"
#include "src/base/alloc.h"
#include "tests/fuzz/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static fsdp_status put_yaml(const void *data, size_t bytes, fsdp_yaml *config)
{
    char path[64];
    fuzz_put("c.yaml", data, bytes);
    snprintf(path, sizeof path, "%s/c.yaml", fuzz_folder());
    return fsdp_yaml_read(path, config);
}

/* Explain the file that put_yaml() has written last. */
static void explain_file(void)
{
    char path[64];
    fsdp_launch_config config = {0};
    fsdp_options *options = NULL;
    FILE *null = fopen("/dev/null", "w");
    if (!null)
        abort();
    snprintf(path, sizeof path, "%s/c.yaml", fuzz_folder());
    if (fsdp_explain_read(path, NULL, &config, &options) == FSDP_OK) {
        const fsdp_explained explained = fsdp_explain(&config, options);
        if (explained.replicas * explained.shards != explained.ranks ||
            fsdp_explain_print(&config, options, null) != FSDP_OK)
            abort();
        fsdp_options_destroy(options);
    }
    fclose(null);
}

/* Print `config`, read the print, and print it again. */
static void print_twice(fsdp_yaml *config)
{
    fsdp_yaml again = {0};
    char *first = fsdp_yaml_print(config);
    if (!first)
        abort();
    if (*first) {
        if (put_yaml(first, strlen(first), &again) != FSDP_OK)
            abort();
        char *second = fsdp_yaml_print(&again);
        if (!second || strcmp(first, second) != 0)
            abort();
        fsdp_free(second);
    }
    fsdp_yaml_fini(&again);
    fsdp_free(first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fsdp_yaml config = {0};
    if (put_yaml(data, bytes, &config) != FSDP_OK)
        return 0;
    explain_file();
    print_twice(&config);
    if (fsdp_to_fsdp2(&config, "c.yaml", NULL, NULL) == FSDP_OK)
        print_twice(&config);
    fsdp_yaml_fini(&config);
    return 0;
}
