/* libFuzzer over the reader of Arrow files: `make fuzz FUZZ_S=60`. The input is a whole file, a
 * stream or the file format. The first rows of a file that opens, and its last row, are read. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/data/arrow/row.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_row(fsdp_arrow_cache *cache, const fsdp_arrow_file *file, int64_t row,
                     const bool *wanted)
{
    fsdp_json *doc;
    if (fsdp_arrow_row_read(cache, file, row, wanted, &doc) == FSDP_OK)
        fsdp_json_destroy(doc);
}

static void read_rows(const fsdp_arrow_file *file)
{
    enum {
        FIRST_ROWS = 32
    };
    const fsdp_arrow_schema *schema = fsdp_arrow_file_schema(file);
    const int64_t rows = fsdp_arrow_file_rows(file);
    fsdp_arrow_cache *cache;
    bool *wanted = calloc(schema->n_fields + 1, sizeof *wanted);
    if (!wanted || fsdp_arrow_cache_create(1 << 20, &cache) != FSDP_OK)
        abort();
    for (size_t i = 0; i < schema->n_fields; i = schema->fields[i].end)
        wanted[i] = fsdp_arrow_is_readable(schema, i);
    for (int64_t i = 0; i < rows && i < FIRST_ROWS; i++)
        read_row(cache, file, i, wanted);
    if (rows)
        read_row(cache, file, rows - 1, wanted);
    fsdp_arrow_cache_destroy(cache);
    free(wanted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    fsdp_arrow_file *file;
    if (fsdp_arrow_file_open(path, &file) == FSDP_OK) {
        read_rows(file);
        fsdp_arrow_file_close(file);
    }
    close(fd);
    return 0;
}
