/*
 * Ancile: a NUMA-aware, shard-per-core, embedded transactional database engine.
 *
 * Made of the Rust source; changes belong there. Link with -lancile_c, and with the static library also
 * with what `cargo rustc -p ancile-c -- --print native-static-libs` names.
 *
 * Threads
 *   Engines, builders, tables and sets of globals are used by any number of threads at once. Sessions and
 *   keys are used by one thread at a time, whichever that is; a second one is told ANCILE_STATUS_BUSY, and
 *   so is a callback that uses the session that called it. A session waits for its results; each thread
 *   that works at the same time takes one of its own.
 *
 * Pointers
 *   Null is an error (ANCILE_STATUS_MISUSE) wherever it is not said to be allowed; so is a handle of
 *   another kind. What is pointed to must be there, of the size that is said, until the call returns, and
 *   nobody else may change it meanwhile. A handle that was freed must not be used: often that is told,
 *   but it cannot always be. Rows are arrays of as many uint64_t as their table has columns; other values
 *   of eight bytes, such as int64_t and double, are stored by their bits. Strings end with a NUL, and are
 *   UTF-8.
 *
 * Ownership
 *   What a function gives as a handle is the caller's, who frees it with the function that its type
 *   names, in any order: sessions, tables and globals may outlive their engine, and are told
 *   ANCILE_STATUS_CLOSED then. Freeing null does nothing.
 *
 * Errors
 *   Functions return a status. Where they take `error`, which may be null, `*error` becomes null, or, if
 *   the status is not ANCILE_STATUS_OK, an error with a sentence, which is the caller's to free. Results
 *   are written only if all went well; a call that failed has changed nothing, unless its status says
 *   otherwise, but of a batch some operations may have happened. Every call can return MISUSE, BUSY,
 *   PANICKED, CLOSED, FORKED, SHARD_FAILED and OTHER; every change can also return READ_ONLY,
 *   JOURNAL_FULL, JOURNAL_BROKEN and NOT_DURABLE. No panic of the library leaves it. Callbacks must
 *   return: an exception must not leave one.
 *
 * Durability
 *   A change has happened, all of it, when its call returns, and survives then what
 *   `ancile_builder_durability` says. Within a transaction (`ancile_begin`) that is the return of
 *   `ancile_commit`.
 *
 * Processes
 *   An engine belongs to the process that opened it; in a child that was forked, its calls return FORKED.
 */


#ifndef ANCILE_H
#define ANCILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Changes survive nothing: an engine in memory.
 */
#define ANCILE_DURABILITY_NONE 1

/**
 * Changes survive the end of the process, however it comes, but not of the system: mapped files.
 */
#define ANCILE_DURABILITY_PROCESS 2

/**
 * Changes survive the end of the system, but for the latest ones: journals that are synced every so
 * often.
 */
#define ANCILE_DURABILITY_EPOCH 3

/**
 * Changes are on the disk when a call that makes them returns: journals.
 */
#define ANCILE_DURABILITY_COMMIT 4

/**
 * Each read sees what is committed at its moment.
 */
#define ANCILE_READ_COMMITTED 0

/**
 * As if transactions ran one after the other.
 */
#define ANCILE_SERIALIZABLE 1

/**
 * A row's id is its place, as an insert has given it: valid until the row is deleted; afterwards it
 * finds nothing.
 */
#define ANCILE_BY_PLACE 0

/**
 * A row's id is its key, in tables that have keys.
 */
#define ANCILE_BY_KEY 1

/**
 * The next key of the same level.
 */
#define ANCILE_NEXT 0

/**
 * The key before it of the same level.
 */
#define ANCILE_PREVIOUS 1

/**
 * The first key of the level below.
 */
#define ANCILE_FIRST 2

/**
 * The last key of the level below.
 */
#define ANCILE_LAST 3

/**
 * What became of a call. Numbers are never given another meaning; there may be more of them one day.
 */
enum ancile_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Done.
   */
  ANCILE_STATUS_OK = 0,
  /**
   * The call itself is wrong: a null pointer, a handle of another kind, an unknown constant. Nothing
   * has happened.
   */
  ANCILE_STATUS_MISUSE = 1,
  /**
   * The session or key is in use by another thread, or by the caller of this callback. Nothing has
   * happened.
   */
  ANCILE_STATUS_BUSY = 2,
  /**
   * Not possible while a transaction of the session is open.
   */
  ANCILE_STATUS_IN_TRANSACTION = 3,
  /**
   * There is no open transaction.
   */
  ANCILE_STATUS_NO_TRANSACTION = 4,
  /**
   * The library met a bug of its own; its thread lives on. Please report it.
   */
  ANCILE_STATUS_PANICKED = 5,
  /**
   * The engine is closed, or was while the operation was under way (then it may have happened).
   */
  ANCILE_STATUS_CLOSED = 6,
  /**
   * The engine belongs to the process that this one was forked from.
   */
  ANCILE_STATUS_FORKED = 7,
  /**
   * A setting is out of its bounds, or the machine does not have what it asks for.
   */
  ANCILE_STATUS_SETTING = 10,
  /**
   * Another engine has the database open.
   */
  ANCILE_STATUS_IN_USE = 11,
  /**
   * The directory is no database, or has another durability or another number of shards.
   */
  ANCILE_STATUS_NO_DATABASE = 12,
  /**
   * The database has another file format.
   */
  ANCILE_STATUS_VERSION = 13,
  /**
   * The database was open when the system went down: `ancile salvage` saves what is whole.
   */
  ANCILE_STATUS_NEEDS_SALVAGE = 14,
  /**
   * A file is damaged: `ancile salvage` saves what is whole.
   */
  ANCILE_STATUS_DAMAGED = 15,
  /**
   * A file could not be read or written, or the system refused memory or a thread.
   */
  ANCILE_STATUS_SYSTEM = 16,
  /**
   * A table of this name exists.
   */
  ANCILE_STATUS_TABLE_EXISTS = 20,
  /**
   * There is no table of this name, or it was dropped.
   */
  ANCILE_STATUS_TABLE_MISSING = 21,
  /**
   * A name or schema is not legal, or not that of the table.
   */
  ANCILE_STATUS_SCHEMA = 22,
  /**
   * A row with this key exists.
   */
  ANCILE_STATUS_DUPLICATE = 30,
  /**
   * The table has no keys, or the row needs one.
   */
  ANCILE_STATUS_KEYED = 31,
  /**
   * There is no such column.
   */
  ANCILE_STATUS_COLUMN = 32,
  /**
   * A key of globals is not legal.
   */
  ANCILE_STATUS_KEY = 33,
  /**
   * A value is too long.
   */
  ANCILE_STATUS_TOO_LONG = 34,
  /**
   * A shard's memory, or a table's places in it, are used up.
   */
  ANCILE_STATUS_FULL = 40,
  /**
   * The disk has no room for more of the journal; free some, and writing goes on by itself.
   */
  ANCILE_STATUS_JOURNAL_FULL = 41,
  /**
   * The journal cannot be written any more; reading goes on.
   */
  ANCILE_STATUS_JOURNAL_BROKEN = 42,
  /**
   * Done, but not known to be on the disk.
   */
  ANCILE_STATUS_NOT_DURABLE = 43,
  /**
   * The database, or the transaction, is for reading only.
   */
  ANCILE_STATUS_READ_ONLY = 44,
  /**
   * Others changed what the transaction relies on. Nothing has happened: try it again.
   */
  ANCILE_STATUS_CONFLICT = 50,
  /**
   * The transaction's time was over. Nothing has happened.
   */
  ANCILE_STATUS_TIMED_OUT = 51,
  /**
   * Too many transactions are under way. Nothing has happened: try it again later.
   */
  ANCILE_STATUS_TOO_MANY_TRANSACTIONS = 52,
  /**
   * A shard has stopped on a bug. Close the engine, and please report it.
   */
  ANCILE_STATUS_SHARD_FAILED = 60,
  /**
   * Another error; its sentence says which.
   */
  ANCILE_STATUS_OTHER = 99,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ancile_status ancile_status;
#else
typedef int32_t ancile_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Settings for an engine; what is not set fits the machine. May be used for many engines, and by any
 * thread.
 */
typedef struct ancile_builder ancile_builder;

/**
 * An open engine. May be used by many threads at once.
 */
typedef struct ancile_engine ancile_engine;

/**
 * An error: its status and a sentence for people. Made by a call that failed, freed by the caller with
 * `ancile_error_free`.
 */
typedef struct ancile_error ancile_error;

/**
 * A set of globals: an ordered store of values of any bytes, up to 16 MiB, under keys of a name and
 * subscripts. May be used by many threads at once.
 */
typedef struct ancile_globals ancile_globals;

/**
 * A key of globals: a name and subscripts, which are numbers or bytes. Numbers come before bytes, and
 * among themselves in the order of numbers; bytes that look like a canonical number are that number.
 * Used by one thread at a time.
 */
typedef struct ancile_key ancile_key;

/**
 * A thread's access to an engine. May be moved between threads, and is used by one at a time.
 */
typedef struct ancile_session ancile_session;

/**
 * A table of columns of eight bytes. May be used by many threads at once.
 */
typedef struct ancile_table ancile_table;

/**
 * Bytes that the library has given: freed with `ancile_bytes_free`, or given to the next call that
 * writes to them, which frees them itself. To begin, `{0}`.
 */
typedef struct {
  /**
   * The bytes, and a NUL behind them, so that a text is a string of C; null if there are none.
   */
  uint8_t *data;
  /**
   * How many, the NUL not counted.
   */
  size_t length;
} ancile_bytes;

/**
 * A function of the caller's that visits a row: its id, its cells, which are there for this call only,
 * and how many; says whether to go on. It is called by the thread that scans, must return, and cannot
 * use the same session.
 */
typedef bool (*ancile_visit_row)(void *context, uint64_t id, const uint64_t *row, size_t columns);

/**
 * A function of the caller's that visits a node: its key, which may be looked at and copied, and its
 * value, both there for this call only; says whether to go on. It is called by the thread that scans,
 * must return, and cannot use the same session.
 */
typedef bool (*ancile_visit_node)(void *context,
                                  const ancile_key *key,
                                  const uint8_t *value,
                                  size_t length);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The status of an error; `ANCILE_STATUS_OK` of null.
 */
ancile_status ancile_error_status(const ancile_error *error);

/**
 * The sentence of an error, with a NUL behind it, valid until the error is freed; of null an empty one.
 */
const char *ancile_error_message(const ancile_error *error);

/**
 * Frees an error; null is nothing to free.
 */
void ancile_error_free(ancile_error *error);

/**
 * The version of the library, as MAJOR.MINOR.PATCH; never freed.
 */
const char *ancile_version(void);

/**
 * Frees bytes, which are `{0}` then; null is nothing to free.
 */
void ancile_bytes_free(ancile_bytes *bytes);

/**
 * Settings that fit the machine. Freed with `ancile_builder_free`.
 */
ancile_builder *ancile_builder_new(void);

/**
 * Frees settings; null is nothing to free. Engines that were opened with them live on.
 */
void ancile_builder_free(ancile_builder *builder);

/**
 * This many shards; by default one a processor that the process may use. A database has as many as it
 * was made with.
 */
ancile_status ancile_builder_shards(ancile_builder *builder,
                                    size_t shards);

/**
 * The bound of each shard's memory, in bytes. Address space is reserved; memory is used only as tables
 * grow. By default the memory of the shard's node, shared by its shards.
 */
ancile_status ancile_builder_arena_bytes(ancile_builder *builder,
                                         uint64_t bytes);

/**
 * What changes survive, one of `ANCILE_DURABILITY_...`; `milliseconds` is how often journals are synced
 * with `ANCILE_DURABILITY_EPOCH`, and means nothing else. By default `ANCILE_DURABILITY_PROCESS` for a
 * new database, and `ANCILE_DURABILITY_COMMIT` for one that has journals.
 */
ancile_status ancile_builder_durability(ancile_builder *builder,
                                        uint32_t durability,
                                        uint64_t milliseconds);

/**
 * Bytes of each file of a shard's journal, a multiple of 4,096; by default 16 MiB.
 */
ancile_status ancile_builder_journal_segment_bytes(ancile_builder *builder, uint64_t bytes);

/**
 * Whether a database is opened for reading only; by default it is not.
 */
ancile_status ancile_builder_read_only(ancile_builder *builder, bool is_read_only);

/**
 * Whether a database that is not there is an error, instead of being made; by default it is made.
 */
ancile_status ancile_builder_must_exist(ancile_builder *builder, bool must_exist);

/**
 * Whether each shard's thread is pinned to its processor; by default it is.
 */
ancile_status ancile_builder_pin(ancile_builder *builder, bool pin);

/**
 * Opens an engine: on the database in the directory `path`, which is made if there is none, or, if
 * `path` is null, in memory. `*engine` is freed with `ancile_engine_free`.
 *
 * Errors: `SETTING`, `IN_USE`, `NO_DATABASE`, `VERSION`, `NEEDS_SALVAGE`, `DAMAGED`, `SYSTEM`.
 */
ancile_status ancile_builder_open(const ancile_builder *builder,
                                  const char *path,
                                  ancile_engine **engine,
                                  ancile_error **error);

/**
 * Closes an engine: what was sent is executed, its threads end, and files are written and marked as
 * closed. Waits for other calls that use the engine. From then on all calls with it, and with its
 * sessions, return `CLOSED`. Closing it again is `CLOSED`, too.
 */
ancile_status ancile_engine_close(ancile_engine *engine, ancile_error **error);

/**
 * Frees an engine; null is nothing to free. One that is open is closed, and cannot tell of a file that
 * could not be written. Sessions, tables and globals of it may be freed before or after it.
 */
void ancile_engine_free(ancile_engine *engine);

/**
 * The number of shards.
 */
ancile_status ancile_engine_shards(const ancile_engine *engine,
                                   size_t *shards,
                                   ancile_error **error);

/**
 * Waits until all that has happened so far is on the disk, of a database with journals.
 *
 * Errors: `NOT_DURABLE`, `CLOSED`.
 */
ancile_status ancile_engine_flush(const ancile_engine *engine, ancile_error **error);

/**
 * Copies a database with journals, while it is in use, into a directory that is made for that. Everything
 * is synced when this returns. `ancile restore` makes a database of it.
 */
ancile_status ancile_engine_backup(const ancile_engine *engine,
                                   const char *directory,
                                   ancile_error **error);

/**
 * Creates a table of 1 to 1,024 columns. With keys, its rows are found by a key of 64 bits, too.
 * `rows_expected` is how much memory is laid out for at first; 0 if that is not known. `*table` is freed
 * with `ancile_table_free`. A table that was created is durable, if the engine is.
 *
 * Errors: `TABLE_EXISTS`, `SCHEMA`, `FULL`, `READ_ONLY`, `CLOSED`.
 */
ancile_status ancile_engine_create_table(const ancile_engine *engine,
                                         const char *name,
                                         size_t columns,
                                         bool is_keyed,
                                         uint64_t rows_expected,
                                         ancile_table **table,
                                         ancile_error **error);

/**
 * Opens a table of columns that exists. `*table` is freed with `ancile_table_free`.
 *
 * Errors: `TABLE_MISSING`, `SCHEMA` if it has records or globals, `CLOSED`.
 */
ancile_status ancile_engine_open_table(const ancile_engine *engine,
                                       const char *name,
                                       ancile_table **table,
                                       ancile_error **error);

/**
 * Drops a table, or a set of globals, with all that is in it. Handles of it find nothing from then on
 * (`TABLE_MISSING`), and are still to be freed.
 *
 * Errors: `TABLE_MISSING`, `READ_ONLY`, `CLOSED`.
 */
ancile_status ancile_engine_drop_table(const ancile_engine *engine,
                                       const char *name,
                                       ancile_error **error);

/**
 * How many columns the rows of a table have; 0 of what is no table.
 */
size_t ancile_table_columns(const ancile_table *table);

/**
 * Whether the rows of a table have keys; false of what is no table.
 */
bool ancile_table_is_keyed(const ancile_table *table);

/**
 * Frees the handle of a table, which stays where it is; null is nothing to free.
 */
void ancile_table_free(ancile_table *table);

/**
 * A new session. `*session` is freed with `ancile_session_free`.
 *
 * Errors: `CLOSED`.
 */
ancile_status ancile_engine_session(const ancile_engine *engine,
                                    ancile_session **session,
                                    ancile_error **error);

/**
 * Frees a session; null is nothing to free. A transaction that is open is rolled back; what was done
 * outside of one stays done. Nobody may use the session meanwhile.
 */
void ancile_session_free(ancile_session *session);

/**
 * Whether the session's changes, of a database with journals, are waited for until they are on the disk
 * (with `ANCILE_DURABILITY_COMMIT` they are), or return when they have happened, and are on the disk a
 * little later: see `ancile_session_flush`.
 *
 * Errors: `IN_TRANSACTION`.
 */
ancile_status ancile_session_wait_for_disk(ancile_session *session,
                                           bool waits,
                                           ancile_error **error);

/**
 * Waits until all that has happened so far is on the disk, of a database with journals.
 *
 * Errors: `NOT_DURABLE`, `CLOSED`, `IN_TRANSACTION`.
 */
ancile_status ancile_session_flush(ancile_session *session, ancile_error **error);

/**
 * Begins a transaction: until it is committed or rolled back, the verbs of the session are parts of it,
 * over any tables, globals and shards. Its changes are seen by itself alone until then. Nobody waits for
 * it meanwhile. `isolation` is `ANCILE_READ_COMMITTED` or `ANCILE_SERIALIZABLE`; after `timeout_micros`,
 * if that is not 0, its calls return `TIMED_OUT`, and it is to be rolled back.
 *
 * Errors: `IN_TRANSACTION` if one is open, `CLOSED`.
 */
ancile_status ancile_begin(ancile_session *session,
                           uint32_t isolation,
                           uint64_t timeout_micros,
                           ancile_error **error);

/**
 * Makes all changes of the transaction happen, or none. It has ended then, whatever is returned. Durable
 * as single changes are.
 *
 * Errors: `CONFLICT` (begin anew, and do all of it again), `TIMED_OUT`, `FULL`, `NOT_DURABLE` (it has
 * happened), `NO_TRANSACTION`, `CLOSED`.
 */
ancile_status ancile_commit(ancile_session *session,
                            ancile_error **error);

/**
 * Ends the transaction without any change.
 *
 * Errors: `NO_TRANSACTION`.
 */
ancile_status ancile_roll_back(ancile_session *session, ancile_error **error);

/**
 * Marks this moment of the transaction, to come back to with `ancile_roll_back_to`.
 *
 * Errors: `NO_TRANSACTION`.
 */
ancile_status ancile_savepoint(ancile_session *session, size_t *savepoint, ancile_error **error);

/**
 * Takes back every change of the transaction since a savepoint, and the savepoints since then; this one
 * stays. What was read stays read.
 *
 * Errors: `NO_TRANSACTION`, `MISUSE` if the transaction has no such savepoint.
 */
ancile_status ancile_roll_back_to(ancile_session *session,
                                  size_t savepoint,
                                  ancile_error **error);

/**
 * Adds a row to a table without keys: `row` leads to as many cells as the table has columns. `*place` is
 * where it is.
 *
 * Errors: `KEYED`, `FULL`, `TABLE_MISSING`, and those of every change (see the head of this header).
 */
ancile_status ancile_insert(ancile_session *session,
                            const ancile_table *table,
                            const uint64_t *row,
                            uint64_t *place,
                            ancile_error **error);

/**
 * Adds a row with a key.
 *
 * Errors: `DUPLICATE` if there is one, `KEYED`, `FULL`, `TABLE_MISSING`, and those of every change.
 */
ancile_status ancile_insert_keyed(ancile_session *session,
                                  const ancile_table *table,
                                  uint64_t key,
                                  const uint64_t *row,
                                  ancile_error **error);

/**
 * Replaces the row of a key, or adds it; `*was_there`, if wanted, says which.
 *
 * Errors: `KEYED`, `FULL`, `TABLE_MISSING`, and those of every change.
 */
ancile_status ancile_upsert(ancile_session *session,
                            const ancile_table *table,
                            uint64_t key,
                            const uint64_t *row,
                            bool *was_there,
                            ancile_error **error);

/**
 * Copies a row to `row`, if there is one, which `*found` says. `by` is `ANCILE_BY_PLACE` or
 * `ANCILE_BY_KEY`.
 *
 * Errors: `KEYED`, `TABLE_MISSING`, and those of every call.
 */
ancile_status ancile_select(ancile_session *session,
                            const ancile_table *table,
                            uint32_t by,
                            uint64_t id,
                            uint64_t *row,
                            bool *found,
                            ancile_error **error);

/**
 * Replaces a row; `*found`, if wanted, says whether there was one.
 *
 * Errors: `KEYED`, `TABLE_MISSING`, and those of every change.
 */
ancile_status ancile_update(ancile_session *session,
                            const ancile_table *table,
                            uint32_t by,
                            uint64_t id,
                            const uint64_t *row,
                            bool *found,
                            ancile_error **error);

/**
 * Sets `count` columns of a row, by number, counted from 0, to `values`, and leaves the others;
 * `*found`, if wanted, says whether there was a row.
 *
 * Errors: `COLUMN`, `KEYED`, `TABLE_MISSING`, and those of every change.
 */
ancile_status ancile_update_columns(ancile_session *session,
                                    const ancile_table *table,
                                    uint32_t by,
                                    uint64_t id,
                                    const size_t *columns,
                                    const uint64_t *values,
                                    size_t count,
                                    bool *found,
                                    ancile_error **error);

/**
 * Removes a row; `*found`, if wanted, says whether there was one.
 *
 * Errors: `KEYED`, `TABLE_MISSING`, and those of every change.
 */
ancile_status ancile_delete(ancile_session *session,
                            const ancile_table *table,
                            uint32_t by,
                            uint64_t id,
                            bool *found,
                            ancile_error **error);

/**
 * Counts the rows of a table. Rows that others add or remove meanwhile may be counted or not.
 *
 * Errors: `TABLE_MISSING`, `IN_TRANSACTION`, and those of every call.
 */
ancile_status ancile_count(ancile_session *session,
                           const ancile_table *table,
                           uint64_t *rows,
                           ancile_error **error);

/**
 * Adds `count` rows to a table without keys. `rows` leads to their cells, one row behind the other;
 * `places`, if wanted, to room for as many places. After an error some may have been added, and
 * `places` says nothing.
 *
 * Errors: as `ancile_insert`.
 */
ancile_status ancile_insert_batch(ancile_session *session,
                                  const ancile_table *table,
                                  const uint64_t *rows,
                                  size_t count,
                                  uint64_t *places,
                                  ancile_error **error);

/**
 * Adds `count` rows with keys; `*added`, if wanted, says how many were. Rows whose key exists are left
 * out; within a transaction they are `DUPLICATE`.
 *
 * Errors: as `ancile_insert_keyed`.
 */
ancile_status ancile_insert_keyed_batch(ancile_session *session,
                                        const ancile_table *table,
                                        const uint64_t *keys,
                                        const uint64_t *rows,
                                        size_t count,
                                        size_t *added,
                                        ancile_error **error);

/**
 * Replaces the rows of `count` keys, or adds them; `*added`, if wanted, says how many were added.
 *
 * Errors: as `ancile_upsert`.
 */
ancile_status ancile_upsert_batch(ancile_session *session,
                                  const ancile_table *table,
                                  const uint64_t *keys,
                                  const uint64_t *rows,
                                  size_t count,
                                  size_t *added,
                                  ancile_error **error);

/**
 * Copies the rows of `count` ids to `rows`, one behind the other in the order of the ids. `found` leads
 * to as many flags: where one is false, there is no such row, and its cells stay as they are.
 *
 * Errors: as `ancile_select`.
 */
ancile_status ancile_select_batch(ancile_session *session,
                                  const ancile_table *table,
                                  uint32_t by,
                                  const uint64_t *ids,
                                  size_t count,
                                  uint64_t *rows,
                                  bool *found,
                                  ancile_error **error);

/**
 * Replaces the rows of `count` ids; `*updated`, if wanted, says how many there were.
 *
 * Errors: as `ancile_update`.
 */
ancile_status ancile_update_batch(ancile_session *session,
                                  const ancile_table *table,
                                  uint32_t by,
                                  const uint64_t *ids,
                                  const uint64_t *rows,
                                  size_t count,
                                  size_t *updated,
                                  ancile_error **error);

/**
 * Removes the rows of `count` ids; `*deleted`, if wanted, says how many there were.
 *
 * Errors: as `ancile_delete`.
 */
ancile_status ancile_delete_batch(ancile_session *session,
                                  const ancile_table *table,
                                  uint32_t by,
                                  const uint64_t *ids,
                                  size_t count,
                                  size_t *deleted,
                                  ancile_error **error);

/**
 * Visits every row, shard by shard, until `visit` says no; ids are places or keys, as `by` says.
 * `context` is handed to it. Others work on meanwhile: a row that is there throughout is visited once,
 * with the values of one moment; a row that comes or goes may be visited or not.
 *
 * Errors: `KEYED`, `TABLE_MISSING`, `IN_TRANSACTION`, and those of every call.
 */
ancile_status ancile_scan(ancile_session *session,
                          const ancile_table *table,
                          uint32_t by,
                          ancile_visit_row visit,
                          void *context,
                          ancile_error **error);

/**
 * A key without subscripts: the name, of 1 to 255 bytes. `*key` is freed with `ancile_key_free`.
 *
 * Errors: `KEY`.
 */
ancile_status ancile_key_new(const char *name, ancile_key **key, ancile_error **error);

/**
 * A copy of a key. `*copy` is freed with `ancile_key_free`.
 */
ancile_status ancile_key_copy(const ancile_key *key, ancile_key **copy, ancile_error **error);

/**
 * Frees a key; null is nothing to free.
 */
void ancile_key_free(ancile_key *key);

/**
 * Adds an integer as the last subscript.
 *
 * Errors: `KEY` if it has more than 18 digits, or the key becomes longer than 2,000 bytes; then it is
 * as it was.
 */
ancile_status ancile_key_push_integer(ancile_key *key,
                                      int64_t subscript,
                                      ancile_error **error);

/**
 * Adds bytes as the last subscript: a text, a number as a text such as `-2.5`, or any others. Of no
 * length they are the empty subscript, which comes before all others.
 *
 * Errors: `KEY` if the key becomes longer than 2,000 bytes; then it is as it was.
 */
ancile_status ancile_key_push_bytes(ancile_key *key,
                                    const uint8_t *subscript,
                                    size_t length,
                                    ancile_error **error);

/**
 * Takes the last subscript away; says whether there was one.
 */
bool ancile_key_pop(ancile_key *key);

/**
 * How many subscripts a key has; 0 of what is no key.
 */
size_t ancile_key_subscripts(const ancile_key *key);

/**
 * A subscript of a key, by number, counted from 1, as bytes: a number in canonical form. 0 is the name.
 * They take the place of what is in `bytes` (see `ancile_bytes`).
 *
 * Errors: `MISUSE` if there is no such subscript.
 */
ancile_status ancile_key_subscript(const ancile_key *key,
                                   size_t number,
                                   ancile_bytes *bytes,
                                   ancile_error **error);

/**
 * Opens the set named `globals`, which is made at its first use, spread over the shards by name and
 * first subscript. `*globals` is freed with `ancile_globals_free`.
 *
 * Errors: `SCHEMA` if the name is a table's, `FULL`, `READ_ONLY`, `CLOSED`.
 */
ancile_status ancile_engine_globals(const ancile_engine *engine,
                                    ancile_globals **globals,
                                    ancile_error **error);

/**
 * Creates a set of globals. Keys with the same name and first `subscripts` subscripts are neighbours in
 * one shard; if it is negative, keys are spread one by one. `*globals` is freed with
 * `ancile_globals_free`.
 *
 * Errors: `TABLE_EXISTS`, `SCHEMA`, `FULL`, `READ_ONLY`, `CLOSED`.
 */
ancile_status ancile_engine_create_globals(const ancile_engine *engine,
                                           const char *name,
                                           int32_t subscripts,
                                           ancile_globals **globals,
                                           ancile_error **error);

/**
 * Opens a set of globals that exists. `*globals` is freed with `ancile_globals_free`.
 *
 * Errors: `TABLE_MISSING`, `SCHEMA` if the name is a table's, `CLOSED`.
 */
ancile_status ancile_engine_open_globals(const ancile_engine *engine,
                                         const char *name,
                                         ancile_globals **globals,
                                         ancile_error **error);

/**
 * Frees the handle of a set of globals, which stays where it is; null is nothing to free.
 */
void ancile_globals_free(ancile_globals *globals);

/**
 * The value of a node, if it has one, which `*found` says. It takes the place of what is in `value` (see
 * `ancile_bytes`); of a node without a value that stays as it is.
 *
 * Errors: `TABLE_MISSING`, and those of every call.
 */
ancile_status ancile_globals_get(ancile_session *session,
                                 const ancile_globals *globals,
                                 const ancile_key *key,
                                 ancile_bytes *value,
                                 bool *found,
                                 ancile_error **error);

/**
 * Sets a node.
 *
 * Errors: `TOO_LONG`, `FULL`, `TABLE_MISSING`, and those of every change.
 */
ancile_status ancile_globals_set(ancile_session *session,
                                 const ancile_globals *globals,
                                 const ancile_key *key,
                                 const uint8_t *value,
                                 size_t length,
                                 ancile_error **error);

/**
 * Adds to the number that a node is worth, in one step; a node that is not there, or no number, counts
 * for 0, and one that begins with a number for that. `sum`, if wanted, is what it is then: a number in
 * canonical form, as a text (see `ancile_bytes`).
 *
 * Errors: `FULL`, `TABLE_MISSING`, and those of every change.
 */
ancile_status ancile_globals_increment(ancile_session *session,
                                       const ancile_globals *globals,
                                       const ancile_key *key,
                                       int64_t by,
                                       ancile_bytes *sum,
                                       ancile_error **error);

/**
 * Removes a node and all below it.
 *
 * Errors: `TABLE_MISSING`, and those of every change.
 */
ancile_status ancile_globals_kill(ancile_session *session,
                                  const ancile_globals *globals,
                                  const ancile_key *key,
                                  ancile_error **error);

/**
 * What there is at a key: a value, nodes below it, both or nothing.
 *
 * Errors: `TABLE_MISSING`, and those of every call.
 */
ancile_status ancile_globals_data(ancile_session *session,
                                  const ancile_globals *globals,
                                  const ancile_key *key,
                                  bool *has_value,
                                  bool *has_descendants,
                                  ancile_error **error);

/**
 * Makes a key the one that `step` leads to, which has a value or nodes below it: `ANCILE_NEXT`,
 * `ANCILE_PREVIOUS`, `ANCILE_FIRST` or `ANCILE_LAST`. `*found` says whether there is one; if not, the
 * key stays as it is.
 *
 * Errors: `TABLE_MISSING`, `IN_TRANSACTION`, and those of every call.
 */
ancile_status ancile_globals_step(ancile_session *session,
                                  const ancile_globals *globals,
                                  uint32_t step,
                                  ancile_key *key,
                                  bool *found,
                                  ancile_error **error);

/**
 * Makes a key that of the next node with a value, in the order of all nodes of its name, and gives that
 * value (see `ancile_bytes`), if one is wanted. `*found` says whether there is one; if not, both stay as
 * they are.
 *
 * Errors: `TABLE_MISSING`, `IN_TRANSACTION`, and those of every call.
 */
ancile_status ancile_globals_query(ancile_session *session,
                                   const ancile_globals *globals,
                                   ancile_key *key,
                                   ancile_bytes *value,
                                   bool *found,
                                   ancile_error **error);

/**
 * Counts the nodes with a value that begin with a key, itself included.
 *
 * Errors: `TABLE_MISSING`, `IN_TRANSACTION`, and those of every call.
 */
ancile_status ancile_globals_count(ancile_session *session,
                                   const ancile_globals *globals,
                                   const ancile_key *key,
                                   uint64_t *nodes,
                                   ancile_error **error);

/**
 * Visits the nodes that begin with a key, itself included, in order (or, with `is_backward`, from the
 * last to the first), until `visit` says no. `context` is handed to it. Others work on meanwhile: a node
 * that is there throughout is visited once; one that comes or goes may be visited or not.
 *
 * Errors: `TABLE_MISSING`, `IN_TRANSACTION`, and those of every call.
 */
ancile_status ancile_globals_scan(ancile_session *session,
                                  const ancile_globals *globals,
                                  const ancile_key *key,
                                  bool is_backward,
                                  ancile_visit_node visit,
                                  void *context,
                                  ancile_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ANCILE_H */
