/* Directories of zip archives: files of torch.save, files beyond 4 GiB, and damaged files, which
 * are made by changing bytes of a file that torch wrote. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/crc32.h"
#include "src/base/io.h"
#include "src/torchfile/zip_format.h"
#include "src/torchfile/zip_reader.h"
#include "tests/test.h"
#include "tests/torchfile/torch_fixture.h"

TEST(the_checksum_is_that_of_zip)
{
    static const char digits[] = "123456789";
    fsdp_crc32_table table;
    fsdp_crc32_init(&table);
    ASSERT_INT(fsdp_crc32(&table, 0, digits, 9), 0xCBF43926);
    ASSERT_INT(fsdp_crc32(&table, fsdp_crc32(&table, 0, digits, 2), digits + 2, 7), 0xCBF43926);
    ASSERT_INT(fsdp_crc32(&table, 0, digits, 0), 0);
}

/* The reference: one bit after the other. */
static uint32_t naive_crc32(uint32_t crc, const unsigned char *p, size_t bytes)
{
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
    }
    return ~crc;
}

/* Blocks of 16 bytes are folded four at a time from 64 bytes on, and on some machines sixteen at a
 * time from 256 bytes on. */
TEST(the_checksum_is_the_same_for_any_length_and_alignment)
{
    unsigned char data[900];
    fsdp_crc32_table table;
    fsdp_crc32_init(&table);
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * i * 31 + i / 256 * 77 + 7);
    for (size_t bytes = 0; bytes <= 890; bytes++) {
        const unsigned char *p = data + bytes % 3;
        const uint32_t before = (uint32_t)bytes * 0x9E3779B9u;
        ASSERT_INT(fsdp_crc32(&table, before, p, bytes), naive_crc32(before, p, bytes));
    }
}

TEST(records_are_found_without_their_folder)
{
    torch_bytes file = torch_fixture_bytes(t, "dtypes.pt");
    fsdp_zip_reader *zip;
    CHECK_HERE();
    ASSERT_OK(fsdp_zip_reader_create("f", file.data, file.bytes, &zip));
    ASSERT_INT(fsdp_zip_reader_count(zip), 16 + 6);
    for (size_t i = 0; i < fsdp_zip_reader_count(zip); i++) {
        const fsdp_zip_record *record = fsdp_zip_reader_at(zip, i);
        ASSERT(fsdp_zip_reader_find(zip, record->name) == record);
        ASSERT_OK(fsdp_zip_reader_check_crc(zip, record));
    }
    const fsdp_zip_record *record = fsdp_zip_reader_find(zip, "byteorder");
    ASSERT(record && record->bytes == 6 && memcmp(record->data, "little", 6) == 0);
    ASSERT(!fsdp_zip_reader_find(zip, "dtypes/byteorder"));
    record = fsdp_zip_reader_find(zip, "data/3");
    ASSERT(record && record->bytes == 48);
    file.data[record->data - file.data] ^= 1;
    ASSERT_ERROR(fsdp_zip_reader_check_crc(zip, record), FSDP_ERR_FORMAT,
                 "f: record 'data/3' is damaged: its checksum is ");
    fsdp_zip_reader_destroy(zip);
    fsdp_free(file.data);
}

/* A writer without checksums stores 0 in the directory and beside the record. A 0 in the directory
 * alone is damage, and must not switch the check off. */
TEST(a_checksum_of_0_in_the_directory_alone_is_damage)
{
    torch_bytes file = torch_fixture_bytes(t, "dtypes.pt");
    fsdp_zip_reader *zip;
    CHECK_HERE();
    const size_t local = torch_find(t, file, 0, "dtypes/data/3", 13);
    const size_t central = torch_find(t, file, local + 1, "dtypes/data/3", 13);
    CHECK_HERE();
    memset(file.data + central - 46 + 16, 0, 4);
    ASSERT_OK(fsdp_zip_reader_create("f", file.data, file.bytes, &zip));
    const fsdp_zip_record *record = fsdp_zip_reader_find(zip, "data/3");
    ASSERT(record && record->crc32 == 0);
    ASSERT_ERROR(fsdp_zip_reader_check_crc(zip, record), FSDP_ERR_FORMAT,
                 "f: record 'data/3' is damaged: its checksum is ");
    fsdp_zip_reader_destroy(zip);
    fsdp_free(file.data);
}

static fsdp_status read_bytes(torch_bytes file)
{
    fsdp_zip_reader *zip;
    FSDP_TRY(fsdp_zip_reader_create("f", file.data, file.bytes, &zip));
    fsdp_status status = fsdp_zip_reader_check_stored(zip);
    fsdp_zip_reader_destroy(zip);
    return status;
}

TEST(bytes_before_the_archive_are_refused_and_behind_it_are_not)
{
    torch_bytes file = torch_fixture_bytes(t, "no_crc.pt"), longer;
    CHECK_HERE();
    longer.bytes = file.bytes + 5;
    longer.data = fsdp_calloc(longer.bytes, 1);
    ASSERT(longer.data != NULL);
    memcpy(longer.data, file.data, file.bytes);
    ASSERT_OK(read_bytes(longer));
    memset(longer.data, 0, 5);
    memcpy(longer.data + 5, file.data, file.bytes);
    ASSERT_ERROR(read_bytes(longer), FSDP_ERR_FORMAT, "f: ");
    fsdp_free(longer.data);
    fsdp_free(file.data);
}

/* A field to change: `at` bytes after the start of the `nth` structure with this signature. */
typedef struct damage {
    const char *signature;
    int nth;
    size_t at;
    unsigned char value;
    fsdp_status status;
    const char *error;
} damage;

static void check_damage(fsdp_test *t, const damage *d)
{
    torch_bytes file = torch_fixture_bytes(t, "no_crc.pt");
    size_t at = 0;
    CHECK_HERE();
    for (int i = 0; i <= d->nth; i++)
        at = torch_find(t, file, at + (i > 0), d->signature, 4);
    CHECK_HERE();
    file.data[at + d->at] = d->value;
    fsdp_status status = read_bytes(file);
    fsdp_free(file.data);
    if (status != d->status || !strstr(fsdp_last_error(), d->error))
        FAIL("%s: %s: %s", d->error, fsdp_status_name(status), fsdp_last_error());
}

TEST(damaged_directories_are_refused)
{
    static const damage cases[] = {
        {"PK\5\6", 0, 20, 1, FSDP_ERR_FORMAT, "f: truncated or damaged zip archive: it has no end"},
        {"PK\6\7", 0, 15, 1, FSDP_ERR_FORMAT, "the zip64 end record is outside the archive"},
        {"PK\6\7", 0, 8, 0, FSDP_ERR_FORMAT, "there is no zip64 end record where one should be"},
        {"PK\6\6", 0, 55, 1, FSDP_ERR_FORMAT, "the central directory is outside the archive"},
        {"PK\6\6", 0, 47, 1, FSDP_ERR_FORMAT, "the central directory is outside the archive"},
        {"PK\6\6", 0, 35, 1, FSDP_ERR_FORMAT, "too short for its entries"},
        {"PK\1\2", 2, 0, 'Q', FSDP_ERR_FORMAT, "an entry of the central directory is missing"},
        {"PK\1\2", 6, 29, 1, FSDP_ERR_FORMAT, "an entry reaches beyond the central directory"},
        {"PK\1\2", 0, 46, 'N', FSDP_ERR_FORMAT, "'No_crc/data.pkl' has no local header"},
        {"PK\1\2", 1, 46, 'N', FSDP_ERR_FORMAT, "is not in the archive's one folder"},
        {"PK\1\2", 0, 55, 0, FSDP_ERR_FORMAT, "has a NUL in its name"},
        {"PK\1\2", 0, 44, 1, FSDP_ERR_FORMAT, "begins outside the archive"},
        {"PK\1\2", 0, 42, 1, FSDP_ERR_FORMAT, "has no local header of its name"},
        {"PK\1\2", 4, 22, 1, FSDP_ERR_FORMAT, "reaches beyond the archive"},
        {"PK\1\2", 4, 20, 1, FSDP_ERR_FORMAT, "does not end where the next one begins"},
        {"PK\1\2", 4, 24, 1, FSDP_ERR_FORMAT, "/data/0' is not compressed, but has two sizes"},
        {"PK\1\2", 4, 10, 8, FSDP_ERR_FORMAT, "by one of its two headers alone"},
        {"PK\1\2", 4, 8, 1, FSDP_ERR_FORMAT, "by one of its two headers alone"},
        {"PK\3\4", 4, 8, 8, FSDP_ERR_FORMAT, "by one of its two headers alone"},
        {"PK\3\4", 4, 6, 1, FSDP_ERR_FORMAT, "by one of its two headers alone"},
        {"PK\3\4", 4, 28, 1, FSDP_ERR_FORMAT, "does not end where the next one begins"},
        {"PK\3\4", 4, 29, 99, FSDP_ERR_FORMAT, "has no local header of its name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_damage(t, &cases[i]);
}

TEST(a_name_that_is_there_twice_is_refused)
{
    torch_bytes file = torch_fixture_bytes(t, "strides.pt");
    CHECK_HERE();
    for (size_t at = 0; at < file.bytes; at++)
        if (file.bytes - at > 14 && memcmp(file.data + at, "strides/data/1", 14) == 0)
            file.data[at + 13] = '0';
    ASSERT_ERROR(read_bytes(file), FSDP_ERR_FORMAT, "f: record 'data/0' is there twice");
    fsdp_free(file.data);
}

/* ---- beyond 4 GiB ---------------------------------------------------------------------------- */

/* Two records, the first of 4 GiB and 100 bytes of zeros that take no disk space. */
TEST(records_beyond_4_GiB_are_found)
{
    char path[300];
    fsdp_zip_entry big = {.name = "a/big", .bytes = (1ull << 32) + 100};
    fsdp_zip_entry far = {.name = "a/far", .bytes = 3};
    fsdp_str head = {0}, middle = {0}, tail = {0};
    fsdp_zip_put_local(&head, &big);
    size_t big_at = head.len;
    uint64_t middle_at = big_at + big.bytes;
    fsdp_zip_put_descriptor(&middle, &big);
    ASSERT_INT(middle.len, 24); /* the descriptor has sizes of 64 bits */
    far.at = middle_at + middle.len;
    fsdp_zip_put_local(&middle, &far);
    fsdp_str_append(&middle, "abc", 3);
    fsdp_zip_put_descriptor(&middle, &far);
    uint64_t directory = middle_at + middle.len;
    fsdp_zip_put_central(&tail, &big);
    fsdp_zip_put_central(&tail, &far);
    fsdp_zip_put_end(&tail, 2, directory, tail.len);

    snprintf(path, sizeof path, "%s/big.pt", fsdp_test_dir(t));
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ASSERT(fd >= 0);
    bool written = pwrite(fd, head.data, head.len, 0) == (ssize_t)head.len &&
                   pwrite(fd, middle.data, middle.len, (off_t)middle_at) == (ssize_t)middle.len &&
                   pwrite(fd, tail.data, tail.len, (off_t)directory) == (ssize_t)tail.len;
    close(fd);
    fsdp_str_fini(&head);
    fsdp_str_fini(&middle);
    fsdp_str_fini(&tail);
    if (!written)
        SKIP("the file system has no files of 4 GiB");

    fsdp_mapping map;
    fsdp_zip_reader *zip;
    ASSERT_OK(fsdp_file_map(path, &map));
    ASSERT_OK(fsdp_zip_reader_create("f", map.data, map.bytes, &zip));
    const fsdp_zip_record *record = fsdp_zip_reader_find(zip, "big");
    ASSERT(record && record->bytes == big.bytes && record->data == map.data + big_at);
    ASSERT(big_at % 64 == 0 && record->data[big.bytes - 1] == 0);
    record = fsdp_zip_reader_find(zip, "far");
    ASSERT(record && record->bytes == 3 && memcmp(record->data, "abc", 3) == 0);
    ASSERT_INT((record->data - map.data) % 64, 0);
    fsdp_zip_reader_destroy(zip);
    fsdp_file_unmap(&map);
}
