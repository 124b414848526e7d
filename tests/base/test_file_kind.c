/* Error messages that say what kind of file a file really is. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "tests/test.h"

enum {
    ROOM = 512
};

typedef struct sample {
    const char *bytes;
    size_t n;
    const char *says;
} sample;

#define SAMPLE(text, says)                                                                         \
    {                                                                                              \
        text, sizeof(text) - 1, says                                                               \
    }

/* Each sample is the beginning of a real file, padded with zeros. */
TEST(kinds_of_files_are_named_by_their_first_bytes)
{
    static const sample samples[] = {
        SAMPLE("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
               "f: not weights, but a Git LFS pointer instead of the file: run 'git lfs pull'"),
        SAMPLE("<!DOCTYPE html>\n<html lang=\"en\">", "but a web page (HTML)"),
        SAMPLE("\xef\xbb\xbf\r\n <HTML><body>404", "but a web page (HTML)"),
        SAMPLE("<?xml version='1.0'?><Error>AccessDenied", "but a web page (HTML)"),
        SAMPLE("\x1f\x8b\x08\0", "but gzip-compressed data"),
        SAMPLE("\xfd\x37zXZ\0", "but xz-compressed data"),
        SAMPLE("PK\3\4\x14\0", "but a zip archive"),
        SAMPLE("PK\3\4\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x13\0\0\0[Content_Types].xml",
               "but a document of an office program, such as .xlsx or .ods: save a spreadsheet as "
               "CSV"),
        SAMPLE("GGUF\3\0\0\0", "but a GGUF file of llama.cpp"),
        SAMPLE("\x93NUMPY\1\0", "but an array of NumPy (.npy)"),
        SAMPLE("\x89HDF\r\n\x1a\n", "from_tf=True"),
        SAMPLE("\x08\x07\x12\x07pytorch", "but an ONNX model"),
        SAMPLE("\x83\xa7"
               "decoder\x82\xa5"
               "block",
               "from_flax=True"),
        SAMPLE("\x50\x12\0\0\0\0\0\0{\"lm_head\"", "but a safetensors file"),
        SAMPLE("\x80\x04\x95\x10", "but a Python pickle"),
    };
    for (size_t i = 0; i < FSDP_LENGTH(samples); i++) {
        char file[ROOM] = {0};
        memcpy(file, samples[i].bytes, samples[i].n);
        ASSERT_ERROR(fsdp_file_explain("f", "weights", FSDP_WANTED_BINARY, file, ROOM),
                     FSDP_ERR_FORMAT, samples[i].says);
    }
}

TEST(small_and_late_signs_are_seen)
{
    char tar[ROOM] = "model/", table[ROOM] = "index";
    static const char zeros[ROOM];
    ASSERT_ERROR(fsdp_file_explain("f", "weights", FSDP_WANTED_BINARY, zeros, ROOM),
                 FSDP_ERR_FORMAT, "but a file that begins with zeros alone");
    ASSERT_OK(fsdp_file_explain("f", "tokens", FSDP_WANTED_NUMBERS, zeros, ROOM));
    memcpy(tar + 257, "ustar", 5);
    memcpy(table + ROOM - 8, "\x57\xfb\x80\x8b\x24\x75\x47\xdb", 8);
    ASSERT_ERROR(fsdp_file_explain("f", "weights", FSDP_WANTED_BINARY, tar, ROOM), FSDP_ERR_FORMAT,
                 "but a tar archive");
    ASSERT_ERROR(fsdp_file_explain("f", "weights", FSDP_WANTED_BINARY, table, ROOM),
                 FSDP_ERR_FORMAT, "but the index of a TensorFlow checkpoint");
    ASSERT_ERROR(fsdp_file_explain("f", "JSON", FSDP_WANTED_TEXT, "", 0), FSDP_ERR_FORMAT,
                 "f: not JSON, but an empty file");
    ASSERT_ERROR(fsdp_file_explain("f", "JSON", FSDP_WANTED_TEXT, "../../blobs/4d7a", 16),
                 FSDP_ERR_FORMAT, "the target of a symbolic link, '../../blobs/4d7a'");
    ASSERT_ERROR(fsdp_file_explain("f", "weights", FSDP_WANTED_BINARY, "Not found\n", 10),
                 FSDP_ERR_FORMAT, "but text that begins with 'Not found'");
    ASSERT_OK(fsdp_file_explain("f", "JSON", FSDP_WANTED_TEXT, "{\"a\": 1,,}", 10));
    ASSERT_OK(fsdp_file_explain("f", "weights", FSDP_WANTED_BINARY, "\xff\xfe\1\2\3", 5));
}

/* What two bytes or a little text begin may be numbers. */
TEST(numbers_are_another_kind_only_where_it_is_certain)
{
    static const char line[] = "First Citizen: Before we proceed any further";
    static const char gzip[40] = "\x1f\x8b", text[40] = "First", parquet[40] = "PAR1";
    ASSERT_OK(fsdp_file_explain("f", "tokens", FSDP_WANTED_NUMBERS, gzip, sizeof gzip));
    ASSERT_OK(fsdp_file_explain("f", "tokens", FSDP_WANTED_NUMBERS, text, sizeof text));
    ASSERT_ERROR(fsdp_file_explain("f", "tokens", FSDP_WANTED_NUMBERS, line, sizeof line - 1),
                 FSDP_ERR_FORMAT, "not tokens, but text that begins with 'First Citizen");
    ASSERT_ERROR(fsdp_file_explain("f", "tokens", FSDP_WANTED_NUMBERS, parquet, sizeof parquet),
                 FSDP_ERR_FORMAT, "a Parquet file");
}

/* Every prefix of a sample is examined without reading the bytes after it. */
TEST(no_byte_beyond_the_end_is_read)
{
    static const char text[] = "<!doctype html><html>version https://git-lfs";
    for (size_t n = 0; n <= sizeof text - 1; n++) {
        char *exact = fsdp_calloc(n ? n : 1, 1);
        ASSERT(exact != NULL);
        memcpy(exact, text, n);
        fsdp_status status = fsdp_file_explain("f", "x", FSDP_WANTED_BINARY, exact, n);
        ASSERT(status == FSDP_OK || status == FSDP_ERR_FORMAT);
        fsdp_free(exact);
    }
}

TEST(a_dangling_link_is_named_with_its_target)
{
    char path[ROOM];
    fsdp_mapping map = {0};
    fsdp_json *doc;
    snprintf(path, sizeof path, "%s/config.json", fsdp_test_dir(t));
    ASSERT(symlink("../blobs/gone", path) == 0);
    ASSERT(fsdp_path_exists(path) && !fsdp_path_is_file(path));
    ASSERT_ERROR(
        fsdp_file_map(path, &map), FSDP_ERR_NOT_FOUND,
        "config.json: cannot open: a symbolic link to ../blobs/gone, which does not exist");
    ASSERT_ERROR(fsdp_json_read(path, &doc), FSDP_ERR_NOT_FOUND, "a symbolic link to");
    ASSERT(unlink(path) == 0 && !fsdp_path_exists(path));
    ASSERT(mkdir(path, 0777) == 0);
    ASSERT_ERROR(fsdp_json_read(path, &doc), FSDP_ERR_IO, "Is a directory");
}
