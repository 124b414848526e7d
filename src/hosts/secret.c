/* See secret.h. */
#include "src/hosts/secret.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#ifdef FSDP_HAVE_NETTLE
#include <nettle/hmac.h>
#endif

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"

enum {
    MOST_FILE_BYTES = 4096
};

#ifdef FSDP_HAVE_NETTLE
static fsdp_status check_build(void)
{
    return FSDP_OK;
}

void fsdp_mac(const uint8_t key[FSDP_MAC_BYTES], const fsdp_mac_part *parts, size_t n_parts,
              uint8_t mac[FSDP_MAC_BYTES])
{
    struct hmac_sha256_ctx context;
    hmac_sha256_set_key(&context, FSDP_MAC_BYTES, key);
    for (size_t i = 0; i < n_parts; i++)
        hmac_sha256_update(&context, parts[i].size, parts[i].bytes);
    hmac_sha256_digest(&context, FSDP_MAC_BYTES, mac);
}
#else
static fsdp_status check_build(void)
{
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "several hosts: this build has no nettle (libnettle8), with which launchers "
                      "recognize each other; install nettle-dev and build again");
}

void fsdp_mac(const uint8_t key[FSDP_MAC_BYTES], const fsdp_mac_part *parts, size_t n_parts,
              uint8_t mac[FSDP_MAC_BYTES])
{
    const bool has_secret = false;
    (void)key, (void)parts, (void)n_parts, (void)mac;
    FSDP_ASSERT(has_secret);
}
#endif

bool fsdp_mac_equal(const uint8_t *a, const uint8_t *b)
{
    unsigned differ = 0;
    for (int i = 0; i < FSDP_MAC_BYTES; i++)
        differ |= (unsigned)(a[i] ^ b[i]);
    return differ == 0;
}

void fsdp_job_secret_digest(const fsdp_job_secret *secret, const char *word,
                            char digest[FSDP_DIGEST_TEXT])
{
    uint8_t mac[FSDP_MAC_BYTES];
    const fsdp_mac_part parts[] = {{"word", 4}, {word, strlen(word)}};
    fsdp_mac(secret->key, parts, FSDP_LENGTH(parts), mac);
    for (int i = 0; i < (FSDP_DIGEST_TEXT - 1) / 2; i++)
        snprintf(digest + 2 * i, 3, "%02x", mac[i]);
}

fsdp_status fsdp_job_secret_of_text(const char *text, fsdp_job_secret *secret)
{
    static const uint8_t salt[FSDP_MAC_BYTES] = "fsdp launch, secret of a job";
    const fsdp_mac_part part = {text, strlen(text)};
    FSDP_TRY(check_build());
    if (part.size < FSDP_SECRET_LEAST)
        return fsdp_error(FSDP_ERR_INVALID,
                          "the job secret has %zu characters, and at least %d are needed; "
                          "'openssl rand -hex 16' makes one",
                          part.size, FSDP_SECRET_LEAST);
    fsdp_mac(salt, &part, 1, secret->key);
    return FSDP_OK;
}

fsdp_status fsdp_job_secret_make(fsdp_job_secret *secret, char text[FSDP_SECRET_TEXT])
{
    uint8_t random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return fsdp_error(FSDP_ERR_IO, "getrandom: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(text + 2 * i, 3, "%02x", random[i]);
    return fsdp_job_secret_of_text(text, secret);
}

/* Read the secret in the first line of a file. As with ssh's keys, only the owner may be able to
 * read the file. */
static fsdp_status read_file(const char *path, fsdp_job_secret *secret)
{
    struct stat st;
    char *text;
    size_t bytes;
    if (stat(path, &st) != 0)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
    if (st.st_mode & (S_IRWXG | S_IRWXO))
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: others may read this job secret (mode %03o); run: chmod 600 %s",
                          path, (unsigned)(st.st_mode & 0777), path);
    FSDP_TRY(fsdp_file_read(path, MOST_FILE_BYTES, &text, &bytes));
    text[strcspn(text, "\r\n")] = 0;
    fsdp_status status = fsdp_job_secret_of_text(text, secret);
    if (status != FSDP_OK)
        fsdp_error_context(status, "%s", path);
    explicit_bzero(text, bytes);
    fsdp_free(text);
    return status;
}

static fsdp_status read_default_file(fsdp_job_secret *secret, bool *found)
{
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    const bool has_xdg = xdg && *xdg;
    if (!has_xdg && (!home || !*home))
        return FSDP_OK;
    char *path = has_xdg ? fsdp_strdup_printf("%s/fsdp/job-secret", xdg)
                         : fsdp_strdup_printf("%s/.config/fsdp/job-secret", home);
    if (!path)
        return fsdp_error_nomem();
    fsdp_status status = FSDP_OK;
    if (fsdp_path_exists(path)) {
        status = read_file(path, secret);
        *found = status == FSDP_OK;
    }
    fsdp_free(path);
    return status;
}

static fsdp_status read_variable(const char *text, fsdp_job_secret *secret)
{
    fsdp_status status = fsdp_job_secret_of_text(text, secret);
    if (status != FSDP_OK)
        fsdp_error_context(status, "environment: " FSDP_JOB_SECRET_ENV);
    return status;
}

static fsdp_status read_secret(const char *path, const char *variable, fsdp_job_secret *secret,
                               bool *found)
{
    if (path)
        FSDP_TRY(read_file(path, secret));
    else if (variable && *variable)
        FSDP_TRY(read_variable(variable, secret));
    else
        return read_default_file(secret, found);
    *found = true;
    return FSDP_OK;
}

fsdp_status fsdp_job_secret_read(const char *path, fsdp_job_secret *secret, bool *found)
{
    char *variable = getenv(FSDP_JOB_SECRET_ENV);
    FSDP_TRY(check_build());
    *found = false;
    const fsdp_status status = read_secret(path, variable, secret, found);
    if (variable) {
        explicit_bzero(variable, strlen(variable));
        unsetenv(FSDP_JOB_SECRET_ENV);
    }
    return status;
}
