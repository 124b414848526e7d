/* A pool of the memory that threads need to encode. Because of the pool, several threads can use
 * the same tokenizer, and callers need not provide this memory. */
#include "src/base/alloc.h"
#include "src/text/tokenizer_internal.h"

static void destroy_work(fsdp_tokenizer_work *work)
{
    if (!work)
        return;
    fsdp_token_work_destroy(work->model);
    fsdp_normalizer_work_destroy(work->normalizer);
    fsdp_pre_tokenizer_work_destroy(work->pre);
    fsdp_token_spans_fini(&work->spans);
    for (int i = 0; i < 2; i++) {
        fsdp_token_list_fini(&work->sequences[i].ids);
        fsdp_free(work->sequences[i].places);
    }
    fsdp_free(work);
}

static fsdp_status create_work(fsdp_tokenizer_work **out)
{
    fsdp_tokenizer_work *work = fsdp_calloc(1, sizeof *work);
    if (!work)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_token_work_create(&work->model);
    if (status == FSDP_OK)
        status = fsdp_normalizer_work_create(&work->normalizer);
    if (status == FSDP_OK)
        status = fsdp_pre_tokenizer_work_create(&work->pre);
    if (status != FSDP_OK) {
        destroy_work(work);
        return status;
    }
    *out = work;
    return FSDP_OK;
}

fsdp_status fsdp_work_pool_create(fsdp_work_pool **out)
{
    fsdp_work_pool *pool = fsdp_calloc(1, sizeof *pool);
    if (!pool)
        return FSDP_ERR_NOMEM;
    if (pthread_mutex_init(&pool->mutex, NULL) != 0) {
        fsdp_free(pool);
        return fsdp_error_nomem();
    }
    *out = pool;
    return FSDP_OK;
}

void fsdp_work_pool_destroy(fsdp_work_pool *pool)
{
    if (!pool)
        return;
    while (pool->free_works) {
        fsdp_tokenizer_work *work = pool->free_works;
        pool->free_works = work->next;
        destroy_work(work);
    }
    pthread_mutex_destroy(&pool->mutex);
    fsdp_free(pool);
}

fsdp_status fsdp_work_pool_take(fsdp_work_pool *pool, fsdp_tokenizer_work **out)
{
    pthread_mutex_lock(&pool->mutex);
    fsdp_tokenizer_work *work = pool->free_works;
    if (work)
        pool->free_works = work->next;
    pthread_mutex_unlock(&pool->mutex);
    if (!work)
        return create_work(out);
    *out = work;
    return FSDP_OK;
}

void fsdp_work_pool_give(fsdp_work_pool *pool, fsdp_tokenizer_work *work)
{
    pthread_mutex_lock(&pool->mutex);
    work->next = pool->free_works;
    pool->free_works = work;
    pthread_mutex_unlock(&pool->mutex);
}
