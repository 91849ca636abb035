#!/usr/bin/env bash
# A GT.M database of its own, in a new directory, and the 3n+1 program at work on it.
#
# Lines of standard input go to the program, its answers come back. Before that, this says where
# the database is and which GT.M it is. Once the input ends, for whatever reason, all processes are
# ended and the directory is removed: a bench that is killed leaves nothing behind either.
set -euo pipefail

usage() {
  echo 'Usage: gtm.sh FOLDER PROGRAM before|none EPOCH-SECONDS   (PROGRAM: the text in M)' >&2
  exit 2
}

main() {
  (( $# == 4 )) || usage
  local folder=$1 program=$2 journal=$3 epoch=$4
  # An interrupt from the terminal ends the bench, and its end is the end of this input.
  trap '' INT
  trap 'exit 1' TERM HUP
  find_gtm
  directory=$(mktemp -d "$folder/ancile-gtm.XXXXXX")
  trap clear_away EXIT
  cd "$directory"
  surroundings
  printf '%s' "$program" > threeen1.m
  create_database "$journal" "$epoch" > setup.log 2>&1 || { cat setup.log >&2; exit 1; }
  echo "directory $directory"
  echo "version $("$gtm_dist/mumps" -run %XCMD 'write $zversion')"

  mkfifo input
  "$gtm_dist/mumps" -run threeen1 < input &
  # Ends with the bench, or at the first line that the program does not take.
  cat > input
}

# Where Debian or GT.M's own installer put it, or where the user says.
find_gtm() {
  local found
  found=$(compgen -G "${gtm_dist:-/nowhere}/mumps" || compgen -G '/usr/lib/*/fis-gtm/*/mumps' \
    || compgen -G '/usr/lib/fis-gtm/*/mumps' || true)
  if [[ -z $found ]]; then
    echo "GT.M is not installed (scripts/setup gtm installs it on Debian and Ubuntu)" >&2
    exit 1
  fi
  gtm_dist=$(dirname "$(sort --version-sort <<< "$found" | tail -n 1)")
}

# Everything in the new directory; UTF-8 with the ICU that the system has.
surroundings() {
  local icu name
  for name in "${!gtm@}" "${!ydb@}" "${!LC_@}"; do
    [[ $name == gtm_dist ]] || unset "$name"
  done
  icu=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p | sed -n 's/.*=> \(.*\/libicuuc\.so\.[0-9]*\)$/\1/p')
  icu=$(readlink -f "$(head -n 1 <<< "$icu")") || { echo "GT.M needs ICU (libicuuc)" >&2; exit 1; }
  export LC_ALL=C.UTF-8 gtm_chset=UTF-8 gtm_icu_version=${icu##*.so.}
  export gtm_dist=${gtm_dist%/utf8}/utf8
  export gtmgbldir=$directory/threeen1.gld gtm_log=$directory gtm_tmp=$directory
  export gtmroutines="$directory $gtm_dist/libgtmutil.so"
}

# Blocks of 4,096 bytes and 5,000 buffers; keys and records as long as the words of 20 digits.
create_database() {
  "$gtm_dist/mumps" -run GDE <<TEXT
change -segment DEFAULT -block_size=4096 -global_buffer_count=5000
change -segment DEFAULT -file_name="$directory/threeen1.dat"
change -region DEFAULT -key_size=480 -record_size=1024
exit
TEXT
  "$gtm_dist/mupip" create
  if [[ $1 == before ]]; then
    "$gtm_dist/mupip" set -region DEFAULT \
      -journal="enable,on,before_images,epoch_interval=$2,filename=$directory/threeen1.mjl"
  fi
}

# First by the end of their input, then by signals; what is left of shared memory goes last.
clear_away() {
  trap - EXIT
  trap '' TERM HUP
  local signal pids
  # A program that waits for input ends at once, one at work only when it is told to.
  await_end 5
  for signal in TERM KILL; do
    mapfile -t pids < <(processes)
    (( ${#pids[@]} == 0 )) || kill -s "$signal" "${pids[@]}" 2> /dev/null || true
    await_end 100
  done
  if [[ -e $directory/threeen1.dat ]]; then
    "$gtm_dist/mupip" rundown -region DEFAULT > /dev/null 2>&1 || true
  fi
  cd /
  rm -rf "$directory"
}

# Waits for all processes to end, for so many tenths of a second.
await_end() {
  local turn
  for (( turn = 0; turn < $1; turn++ )); do
    [[ -n $(processes) ]] || return 0
    sleep 0.1
  done
}

# The program and its streams: processes of GT.M that work in this directory.
processes() {
  local process
  for process in /proc/[0-9]*; do
    if [[ $process/cwd -ef $directory && $process/exe -ef $gtm_dist/mumps ]]; then
      echo "${process#/proc/}"
    fi
  done
}

main "$@"
