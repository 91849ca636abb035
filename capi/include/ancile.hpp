// Ancile for C++17: the functions of ancile.h as classes that free what they hold, and throw errors.
//
// What ancile.h says of threads, durability and errors holds here. Handles are moved, not copied, and
// freed by their destructors, in any order. A call that fails throws ancile::Error; functions that are
// handed to a scan, and the bodies of transactions, may throw.

#ifndef ANCILE_HPP
#define ANCILE_HPP

#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ancile.h"

namespace ancile {

// What a call throws: the status for programs, what() for people.
class Error : public std::runtime_error {
 public:
  Error(ancile_status status, const std::string &sentence)
      : std::runtime_error(sentence), status_(status) {}
  ancile_status status() const noexcept { return status_; }

 private:
  ancile_status status_;
};

namespace detail {

template <auto function>
struct Free {
  template <class T>
  void operator()(T *handle) const noexcept {
    function(handle);
  }
};

template <class T, auto function>
using Handle = std::unique_ptr<T, Free<function>>;

// Makes a call, which is given the place of its error.
template <class Call>
void call(Call &&make) {
  ancile_error *error = nullptr;
  const ancile_status status = make(&error);
  if (status == ANCILE_STATUS_OK) return;
  const Handle<ancile_error, ancile_error_free> freed(error);
  throw Error(status, error ? ancile_error_message(error) : "the call failed");
}

// Makes a call that gives a handle.
template <class Made, class Call>
Made make(Call &&call_it) {
  typename Made::pointer handle = nullptr;
  call([&](ancile_error **error) { return call_it(&handle, error); });
  return Made(handle);
}

// Bytes that a call has written.
class Text {
 public:
  Text() = default;
  Text(const Text &) = delete;
  Text &operator=(const Text &) = delete;
  ~Text() { ancile_bytes_free(&bytes_); }
  ancile_bytes *place() noexcept { return &bytes_; }
  std::string string() const {
    return std::string(reinterpret_cast<const char *>(bytes_.data), bytes_.length);
  }

 private:
  ancile_bytes bytes_{};
};

inline const std::uint8_t *bytes(std::string_view text) {
  return reinterpret_cast<const std::uint8_t *>(text.data());
}

// A function that C calls: what it throws is kept until C has returned. One that returns nothing goes on.
template <class Visit>
struct Visitor {
  Visit &visit;
  std::exception_ptr thrown{};

  template <class... Shown>
  bool operator()(Shown &&...shown) noexcept {
    try {
      if constexpr (std::is_void_v<std::invoke_result_t<Visit &, Shown...>>) {
        visit(std::forward<Shown>(shown)...);
        return true;
      } else {
        return visit(std::forward<Shown>(shown)...);
      }
    } catch (...) {
      thrown = std::current_exception();
      return false;
    }
  }

  void rethrow() const {
    if (thrown) std::rethrow_exception(thrown);
  }
};

}  // namespace detail

inline std::string_view version() { return ancile_version(); }

// A row of so many cells of eight bytes. Other values of eight bytes are stored by their bits.
template <std::size_t columns>
using Row = std::array<std::uint64_t, columns>;

template <class Value>
std::uint64_t to_cell(Value value) {
  static_assert(sizeof(Value) == 8 && std::is_trivially_copyable_v<Value>);
  std::uint64_t cell;
  std::memcpy(&cell, &value, sizeof cell);
  return cell;
}

template <class Value>
Value from_cell(std::uint64_t cell) {
  static_assert(sizeof(Value) == 8 && std::is_trivially_copyable_v<Value>);
  Value value;
  std::memcpy(&value, &cell, sizeof cell);
  return value;
}

// Where a row is: given by an insert, valid until the row is deleted.
struct Place {
  std::uint64_t number;
  static constexpr std::uint32_t by = ANCILE_BY_PLACE;
};

// The key of a row, in tables that have keys.
struct RowKey {
  std::uint64_t number;
  static constexpr std::uint32_t by = ANCILE_BY_KEY;
};

// A table whose rows have so many columns.
template <std::size_t columns>
class Table {
 public:
  const ancile_table *get() const noexcept { return table_.get(); }

 private:
  friend class Engine;
  using Handle = detail::Handle<ancile_table, ancile_table_free>;
  explicit Table(Handle table) : table_(std::move(table)) {
    if (ancile_table_columns(table_.get()) != columns) {
      throw Error(ANCILE_STATUS_SCHEMA, "the table has rows of another number of columns");
    }
  }
  Handle table_;
};

// A key of globals: a name and subscripts, which are integers and texts in any mixture.
class Key {
 public:
  template <class... Subscripts>
  explicit Key(const char *name, const Subscripts &...subscripts)
      : key_(detail::make<Handle>([&](ancile_key **key, ancile_error **error) {
          return ancile_key_new(name, key, error);
        })) {
    (push(subscripts), ...);
  }
  Key(const Key &other) : key_(copy(other.get())) {}
  Key(Key &&) noexcept = default;
  Key &operator=(Key other) noexcept {
    key_ = std::move(other.key_);
    return *this;
  }

  // A copy of what a scan shows.
  static Key of(const ancile_key *shown) { return Key(copy(shown)); }

  template <class Integer, std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
  Key &push(Integer subscript) {
    detail::call([&](ancile_error **error) {
      return ancile_key_push_integer(get(), static_cast<std::int64_t>(subscript), error);
    });
    return *this;
  }
  Key &push(std::string_view subscript) {
    detail::call([&](ancile_error **error) {
      return ancile_key_push_bytes(get(), detail::bytes(subscript), subscript.size(), error);
    });
    return *this;
  }
  bool pop() { return ancile_key_pop(get()); }

  std::size_t subscripts() const { return ancile_key_subscripts(get()); }
  // A subscript, counted from 1; 0 is the name.
  std::string subscript(std::size_t number) const {
    detail::Text text;
    detail::call([&](ancile_error **error) {
      return ancile_key_subscript(get(), number, text.place(), error);
    });
    return text.string();
  }

  ancile_key *get() const noexcept { return key_.get(); }

 private:
  using Handle = detail::Handle<ancile_key, ancile_key_free>;
  explicit Key(Handle key) : key_(std::move(key)) {}
  static Handle copy(const ancile_key *key) {
    return detail::make<Handle>([&](ancile_key **made, ancile_error **error) {
      return ancile_key_copy(key, made, error);
    });
  }
  Handle key_;
};

// An ordered store of values under keys.
class Globals {
 public:
  const ancile_globals *get() const noexcept { return globals_.get(); }

 private:
  friend class Engine;
  using Handle = detail::Handle<ancile_globals, ancile_globals_free>;
  explicit Globals(Handle globals) : globals_(std::move(globals)) {}
  Handle globals_;
};

// A thread's access to an engine.
class Session {
 public:
  // Runs a body as one transaction: the verbs of this session are parts of it until it returns. All of it
  // happens, or, if it throws, nothing. It is run again when others came between, `tries` times at most,
  // so it should change nothing else.
  template <class Body>
  std::invoke_result_t<Body &> transaction(Body &&body,
                                           std::uint32_t isolation = ANCILE_READ_COMMITTED,
                                           unsigned tries = 100) {
    for (;;) {
      begin(isolation);
      try {
        if constexpr (std::is_void_v<std::invoke_result_t<Body &>>) {
          body();
          commit();
          return;
        } else {
          auto result = body();
          commit();
          return result;
        }
      } catch (const Error &error) {
        // After a commit there is nothing to roll back, which is no matter.
        ancile_roll_back(get(), nullptr);
        if (error.status() != ANCILE_STATUS_CONFLICT || --tries == 0) throw;
      } catch (...) {
        ancile_roll_back(get(), nullptr);
        throw;
      }
    }
  }

  void begin(std::uint32_t isolation = ANCILE_READ_COMMITTED, std::uint64_t timeout_micros = 0) {
    call(ancile_begin, isolation, timeout_micros);
  }
  void commit() { call(ancile_commit); }
  void roll_back() { call(ancile_roll_back); }
  std::size_t savepoint() {
    std::size_t savepoint = 0;
    call(ancile_savepoint, &savepoint);
    return savepoint;
  }
  void roll_back_to(std::size_t savepoint) { call(ancile_roll_back_to, savepoint); }
  void flush() { call(ancile_session_flush); }
  void wait_for_disk(bool waits) { call(ancile_session_wait_for_disk, waits); }

  // Rows, one by one.

  template <std::size_t n>
  Place insert(const Table<n> &table, const Row<n> &row) {
    Place place{};
    call(ancile_insert, table.get(), row.data(), &place.number);
    return place;
  }
  template <std::size_t n>
  void insert(const Table<n> &table, RowKey key, const Row<n> &row) {
    call(ancile_insert_keyed, table.get(), key.number, row.data());
  }
  // Says whether there was a row before.
  template <std::size_t n>
  bool upsert(const Table<n> &table, RowKey key, const Row<n> &row) {
    bool was_there = false;
    call(ancile_upsert, table.get(), key.number, row.data(), &was_there);
    return was_there;
  }
  template <std::size_t n, class Id>
  std::optional<Row<n>> select(const Table<n> &table, Id id) {
    Row<n> row;
    bool found = false;
    call(ancile_select, table.get(), Id::by, id.number, row.data(), &found);
    return found ? std::optional<Row<n>>(row) : std::nullopt;
  }
  // Says whether there was a row, as those below.
  template <std::size_t n, class Id>
  bool update(const Table<n> &table, Id id, const Row<n> &row) {
    bool found = false;
    call(ancile_update, table.get(), Id::by, id.number, row.data(), &found);
    return found;
  }
  template <std::size_t n, class Id>
  bool update_column(const Table<n> &table, Id id, std::size_t column, std::uint64_t cell) {
    bool found = false;
    call(ancile_update_columns, table.get(), Id::by, id.number, &column, &cell, std::size_t{1},
         &found);
    return found;
  }
  template <std::size_t n, class Id>
  bool erase(const Table<n> &table, Id id) {
    bool found = false;
    call(ancile_delete, table.get(), Id::by, id.number, &found);
    return found;
  }
  template <std::size_t n>
  std::uint64_t count(const Table<n> &table) {
    std::uint64_t rows = 0;
    call(ancile_count, table.get(), &rows);
    return rows;
  }
  // Visits all rows: visit(Id, const Row<n> &), which returns whether to go on, or nothing.
  template <class Id, std::size_t n, class Visit>
  void scan(const Table<n> &table, Visit &&visit) {
    detail::Visitor<std::remove_reference_t<Visit>> visitor{visit};
    const ancile_visit_row show = [](void *context, std::uint64_t id, const std::uint64_t *cells,
                                     std::size_t) {
      Row<n> row;
      std::memcpy(row.data(), cells, sizeof row);
      return (*static_cast<decltype(visitor) *>(context))(Id{id}, std::as_const(row));
    };
    call(ancile_scan, table.get(), Id::by, show, &visitor);
    visitor.rethrow();
  }

  // Rows, many at once.

  template <std::size_t n>
  std::vector<Place> insert(const Table<n> &table, const std::vector<Row<n>> &rows) {
    std::vector<Place> places(rows.size());
    call(ancile_insert_batch, table.get(), cells(rows), rows.size(), numbers(places));
    return places;
  }
  // Rows whose key exists are left out; says how many were added.
  template <std::size_t n>
  std::size_t insert(const Table<n> &table, const std::vector<RowKey> &keys,
                     const std::vector<Row<n>> &rows) {
    std::size_t added = 0;
    check(keys.size(), rows.size());
    call(ancile_insert_keyed_batch, table.get(), numbers(keys), cells(rows), rows.size(), &added);
    return added;
  }
  // Says how many were added.
  template <std::size_t n>
  std::size_t upsert(const Table<n> &table, const std::vector<RowKey> &keys,
                     const std::vector<Row<n>> &rows) {
    std::size_t added = 0;
    check(keys.size(), rows.size());
    call(ancile_upsert_batch, table.get(), numbers(keys), cells(rows), rows.size(), &added);
    return added;
  }
  template <std::size_t n, class Id>
  std::vector<std::optional<Row<n>>> select(const Table<n> &table, const std::vector<Id> &ids) {
    std::vector<Row<n>> rows(ids.size());
    const std::unique_ptr<bool[]> found(new bool[ids.size()]);
    call(ancile_select_batch, table.get(), Id::by, numbers(ids), ids.size(), cells(rows),
         found.get());
    std::vector<std::optional<Row<n>>> result(ids.size());
    for (std::size_t at = 0; at < ids.size(); ++at) {
      if (found[at]) result[at] = rows[at];
    }
    return result;
  }
  // Says how many there were, as the one below.
  template <std::size_t n, class Id>
  std::size_t update(const Table<n> &table, const std::vector<Id> &ids,
                     const std::vector<Row<n>> &rows) {
    std::size_t updated = 0;
    check(ids.size(), rows.size());
    call(ancile_update_batch, table.get(), Id::by, numbers(ids), cells(rows), rows.size(),
         &updated);
    return updated;
  }
  template <std::size_t n, class Id>
  std::size_t erase(const Table<n> &table, const std::vector<Id> &ids) {
    std::size_t deleted = 0;
    call(ancile_delete_batch, table.get(), Id::by, numbers(ids), ids.size(), &deleted);
    return deleted;
  }

  // Globals.

  std::optional<std::string> get(const Globals &globals, const Key &key) {
    detail::Text value;
    bool found = false;
    call(ancile_globals_get, globals.get(), key.get(), value.place(), &found);
    return found ? std::optional<std::string>(value.string()) : std::nullopt;
  }
  void set(const Globals &globals, const Key &key, std::string_view value) {
    call(ancile_globals_set, globals.get(), key.get(), detail::bytes(value), value.size());
  }
  // What the node is then: a number in canonical form.
  std::string increment(const Globals &globals, const Key &key, std::int64_t by = 1) {
    detail::Text sum;
    call(ancile_globals_increment, globals.get(), key.get(), by, sum.place());
    return sum.string();
  }
  void kill(const Globals &globals, const Key &key) {
    call(ancile_globals_kill, globals.get(), key.get());
  }
  // Make a key its neighbour, and say whether there is one: `$ORDER` of GT.M.
  bool next(const Globals &globals, Key &key) { return step(globals, key, ANCILE_NEXT); }
  bool previous(const Globals &globals, Key &key) { return step(globals, key, ANCILE_PREVIOUS); }
  bool first(const Globals &globals, Key &key) { return step(globals, key, ANCILE_FIRST); }
  bool last(const Globals &globals, Key &key) { return step(globals, key, ANCILE_LAST); }
  // Makes a key that of the next node with a value, and gives the value: `$QUERY` of GT.M.
  std::optional<std::string> query(const Globals &globals, Key &key) {
    detail::Text value;
    bool found = false;
    call(ancile_globals_query, globals.get(), key.get(), value.place(), &found);
    return found ? std::optional<std::string>(value.string()) : std::nullopt;
  }
  std::uint64_t count(const Globals &globals, const Key &key) {
    std::uint64_t nodes = 0;
    call(ancile_globals_count, globals.get(), key.get(), &nodes);
    return nodes;
  }
  // Visits the nodes below a key, itself included, in order: visit(const ancile_key *, std::string_view),
  // which returns whether to go on, or nothing. Key::of copies a key.
  template <class Visit>
  void scan(const Globals &globals, const Key &key, Visit &&visit, bool is_backward = false) {
    detail::Visitor<std::remove_reference_t<Visit>> visitor{visit};
    const ancile_visit_node show = [](void *context, const ancile_key *shown,
                                      const std::uint8_t *value, std::size_t length) {
      const std::string_view text(reinterpret_cast<const char *>(value), length);
      return (*static_cast<decltype(visitor) *>(context))(shown, text);
    };
    call(ancile_globals_scan, globals.get(), key.get(), is_backward, show, &visitor);
    visitor.rethrow();
  }

  ancile_session *get() const noexcept { return session_.get(); }

 private:
  friend class Engine;
  using Handle = detail::Handle<ancile_session, ancile_session_free>;
  explicit Session(Handle session) : session_(std::move(session)) {}

  template <class Function, class... Given>
  void call(Function *function, Given... given) {
    detail::call([&](ancile_error **error) { return function(get(), given..., error); });
  }
  bool step(const Globals &globals, Key &key, std::uint32_t step) {
    bool found = false;
    call(ancile_globals_step, globals.get(), step, key.get(), &found);
    return found;
  }
  static void check(std::size_t left, std::size_t right) {
    if (left != right) throw Error(ANCILE_STATUS_MISUSE, "ids and rows differ in number");
  }
  // Ids and rows are nothing but their numbers, one behind the other.
  template <class Id>
  static const std::uint64_t *numbers(const std::vector<Id> &ids) {
    static_assert(sizeof(Id) == sizeof(std::uint64_t) && std::is_standard_layout_v<Id>);
    return reinterpret_cast<const std::uint64_t *>(ids.data());
  }
  static std::uint64_t *numbers(std::vector<Place> &ids) {
    return reinterpret_cast<std::uint64_t *>(ids.data());
  }
  template <std::size_t n>
  static const std::uint64_t *cells(const std::vector<Row<n>> &rows) {
    static_assert(sizeof(Row<n>) == n * sizeof(std::uint64_t));
    return reinterpret_cast<const std::uint64_t *>(rows.data());
  }
  template <std::size_t n>
  static std::uint64_t *cells(std::vector<Row<n>> &rows) {
    return reinterpret_cast<std::uint64_t *>(rows.data());
  }

  Handle session_;
};

// An open engine, which may be shared by threads; its destructor closes it, too.
class Engine {
 public:
  // Tells of files that could not be written, which the destructor cannot.
  void close() {
    detail::call([&](ancile_error **error) { return ancile_engine_close(get(), error); });
  }
  void flush() {
    detail::call([&](ancile_error **error) { return ancile_engine_flush(get(), error); });
  }
  void backup(const std::string &directory) {
    detail::call([&](ancile_error **error) {
      return ancile_engine_backup(get(), directory.c_str(), error);
    });
  }
  std::size_t shards() const {
    std::size_t shards = 0;
    detail::call([&](ancile_error **error) { return ancile_engine_shards(get(), &shards, error); });
    return shards;
  }
  Session session() {
    return Session(detail::make<Session::Handle>([&](auto **session, auto **error) {
      return ancile_engine_session(get(), session, error);
    }));
  }

  template <std::size_t columns>
  Table<columns> create_table(const std::string &name, bool is_keyed,
                              std::uint64_t rows_expected = 0) {
    using Handle = typename Table<columns>::Handle;
    return Table<columns>(detail::make<Handle>([&](auto **table, auto **error) {
      return ancile_engine_create_table(get(), name.c_str(), columns, is_keyed, rows_expected,
                                        table, error);
    }));
  }
  template <std::size_t columns>
  Table<columns> open_table(const std::string &name) {
    using Handle = typename Table<columns>::Handle;
    return Table<columns>(detail::make<Handle>([&](auto **table, auto **error) {
      return ancile_engine_open_table(get(), name.c_str(), table, error);
    }));
  }
  void drop_table(const std::string &name) {
    detail::call([&](ancile_error **error) {
      return ancile_engine_drop_table(get(), name.c_str(), error);
    });
  }

  // The set named "globals", made at its first use.
  Globals globals() {
    return Globals(detail::make<Globals::Handle>([&](auto **globals, auto **error) {
      return ancile_engine_globals(get(), globals, error);
    }));
  }
  Globals create_globals(const std::string &name, std::int32_t subscripts) {
    return Globals(detail::make<Globals::Handle>([&](auto **globals, auto **error) {
      return ancile_engine_create_globals(get(), name.c_str(), subscripts, globals, error);
    }));
  }
  Globals open_globals(const std::string &name) {
    return Globals(detail::make<Globals::Handle>([&](auto **globals, auto **error) {
      return ancile_engine_open_globals(get(), name.c_str(), globals, error);
    }));
  }

  ancile_engine *get() const noexcept { return engine_.get(); }

 private:
  friend class Builder;
  using Handle = detail::Handle<ancile_engine, ancile_engine_free>;
  explicit Engine(Handle engine) : engine_(std::move(engine)) {}
  Handle engine_;
};

// Settings for an engine; what is not set fits the machine.
class Builder {
 public:
  Builder() : builder_(ancile_builder_new()) {}
  Builder &shards(std::size_t shards) { return set(ancile_builder_shards, shards); }
  Builder &arena_bytes(std::uint64_t bytes) { return set(ancile_builder_arena_bytes, bytes); }
  Builder &durability(std::uint32_t durability, std::uint64_t milliseconds = 0) {
    return set(ancile_builder_durability, durability, milliseconds);
  }
  Builder &journal_segment_bytes(std::uint64_t bytes) {
    return set(ancile_builder_journal_segment_bytes, bytes);
  }
  Builder &read_only(bool is_read_only) { return set(ancile_builder_read_only, is_read_only); }
  Builder &must_exist(bool must_exist) { return set(ancile_builder_must_exist, must_exist); }
  Builder &pin(bool pin) { return set(ancile_builder_pin, pin); }

  // An engine in memory.
  Engine build() const { return open_at(nullptr); }
  // The database in a directory, which is made if there is none.
  Engine open(const std::string &path) const { return open_at(path.c_str()); }

 private:
  template <class Function, class... Given>
  Builder &set(Function *function, Given... given) {
    const ancile_status status = function(builder_.get(), given...);
    if (status != ANCILE_STATUS_OK) throw Error(status, "the setting is unknown");
    return *this;
  }
  Engine open_at(const char *path) const {
    return Engine(detail::make<Engine::Handle>([&](auto **engine, auto **error) {
      return ancile_builder_open(builder_.get(), path, engine, error);
    }));
  }
  detail::Handle<ancile_builder, ancile_builder_free> builder_;
};

}  // namespace ancile

#endif  // ANCILE_HPP
