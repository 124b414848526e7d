/* libFuzzer over the reader of torch.save's files: `make fuzz FUZZ_S=60`. An input that begins with
 * PROTO is a pickle, which is put into an archive with one storage, so that checksums do not keep
 * the fuzzer out; any other is a whole file. A file that loads is read to its last byte, so that
 * ASan finds an entry that reaches outside. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/str.h"
#include "src/source/source.h"
#include "src/torchfile/torch_file.h"
#include "src/torchfile/zip_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* "a/data.pkl" is the input, "a/data/0" 48 bytes; no checksums. */
static void put_archive(fsdp_str *out, const uint8_t *pickle, size_t bytes)
{
    static const uint8_t storage[48];
    const uint8_t *const data[] = {pickle, storage};
    fsdp_zip_entry entries[] = {{.name = "a/data.pkl", .bytes = bytes},
                                {.name = "a/data/0", .bytes = sizeof storage}};
    for (int i = 0; i < 2; i++) {
        entries[i].at = out->len;
        fsdp_zip_put_local(out, &entries[i]);
        fsdp_str_append(out, (const char *)data[i], (size_t)entries[i].bytes);
        fsdp_zip_put_descriptor(out, &entries[i]);
    }
    size_t directory = out->len;
    for (int i = 0; i < 2; i++)
        fsdp_zip_put_central(out, &entries[i]);
    fsdp_zip_put_end(out, 2, directory, out->len - directory);
}

static volatile unsigned char last_byte; /* keeps the reads */

static void read_all(const fsdp_torch_file *file)
{
    unsigned char sink = 0;
    for (size_t i = 0; i < fsdp_torch_file_count(file); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_torch_file_at(file, i);
        for (size_t k = 0; k < entry->bytes; k++)
            sink ^= ((const unsigned char *)entry->data)[k];
        if (fsdp_torch_file_find(file, entry->name) != entry)
            abort();
    }
    last_byte = sink;
}

/* The same file as tools read it, including DTensors, and values as text. */
static void read_source(fsdp_source *source)
{
    unsigned char rows[4096], sink = 0;
    for (size_t i = 0; i < fsdp_source_count(source); i++) {
        const fsdp_source_item *item = fsdp_source_at(source, i);
        const fsdp_pickle_value *value;
        fsdp_str text = {0};
        const size_t bytes = (size_t)item->bytes < sizeof rows ? (size_t)item->bytes : sizeof rows;
        if (item->dtype_name && fsdp_source_read(source, item, 0, rows, bytes) == FSDP_OK && bytes)
            sink ^= rows[bytes - 1];
        if (!item->dtype_name && fsdp_source_value(source, item, &value) == FSDP_OK) {
            fsdp_source_repr(value, 100, &text);
            (void)fsdp_pickle_find_opaque(value);
        }
        fsdp_str_fini(&text);
    }
    last_byte = sink;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    fsdp_str text = {0};
    if (bytes && data[0] == 0x80)
        put_archive(&text, data, bytes);
    else
        fsdp_str_append(&text, (const char *)data, bytes);
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text.data, text.len) != (ssize_t)text.len)
        abort();
    fsdp_str_fini(&text);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    fsdp_torch_file *file;
    if (fsdp_torch_file_open(path, &file) == FSDP_OK) {
        read_all(file);
        fsdp_torch_file_close(file);
    }
    fsdp_source *source;
    if (fsdp_source_open(path, &source) == FSDP_OK) {
        read_source(source);
        fsdp_source_close(source);
    }
    close(fd);
    return 0;
}
