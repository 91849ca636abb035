threeen1 ; Longest 3n+1 sequences, by many processes on one database
 ;
 ; Standard input holds lines "first last streams block". For each of them the program writes
 ; "done first last streams block longest highest microseconds updates reads nodes"; once the
 ; database is cleared, it writes "cleared". It ends with its input, or at an empty line.
 ;
 ; What the environment says:
 ;   threeen1_spelling  words: each digit is spelled as a word; digits: numbers as they are
 ;   threeen1_unit      update: every update by itself; path: one transaction for each path
 ;   threeen1_commit    lazy: a commit waits for nothing; hard: it waits for the journal
 ;
 ; What the database holds:
 ;   ^step(n)     how many steps lead from n to 1
 ;   ^limit(b)    the last integer of block b; ^limit(0) is the one before the first block
 ;   ^claim(b)    how many streams wanted block b; the first of them has it
 ;   ^result      the longest sequence; ^highest, ^reads, ^updates: what streams add at their end
 ;   ^run(..)     who is ready, done or failed, and when
 ;
 ; Steps, result and highest that are there at the start are partial results and stay; the rest
 ; belongs to one run.
 new line
 set $etrap="write ""failed "",$zstatus,! halt"
 use $principal:nowrap
 for  read line quit:line=""  do run(line)
 quit
 ;
run(line) ; one line of input
 new b,block,finish,first,last,n,nodes,process,start,streams
 set first=$piece(line," ",1),last=$piece(line," ",2)
 set streams=$piece(line," ",3),block=$piece(line," ",4)
 kill ^limit,^claim,^reads,^updates,^run
 set b=0,^limit(0)=first-1
 for n=first-1+block:block quit:n'<last  set b=b+1,^limit(b)=n
 set ^limit(b+1)=last
 lock ^go
 for b=1:1:streams do
 . job stream(b,$job):(output="/dev/null":error="/dev/null")
 . set process(b)=$zjob
 do await("ready")
 set start=$$micros
 lock
 do await("done")
 set finish=start
 for b=1:1:streams set n=^run("finish",b) set:n>finish finish=n
 set nodes=0,n=""
 for  set n=$order(^step(n)) quit:n=""  set nodes=nodes+1
 write "done ",line," ",^result," ",^highest," ",finish-start," ",^updates," ",^reads," ",nodes,!
 kill ^step,^limit,^claim,^result,^highest,^reads,^updates,^run
 write "cleared",!
 quit
 ;
await(what) ; until all streams are so far; ends the program when one is lost
 new b,turn
 for turn=1:1 quit:$get(^run(what))=streams  do  hang .002
 . if $data(^run("failed")) write "failed ",^run("failed"),! halt
 . quit:turn#500
 . for b=1:1:streams if '$data(^run("finish",b)),$zsigproc(process(b),0) write "failed a stream has died",! halt
 quit
 ;
stream(ordinal,program) ; one stream, in a process of its own
 new b,digit,hard,highest,n,number,plain,reads,unit,updates,word
 set $etrap="trollback:$tlevel  set ^run(""failed"")=$zstatus halt"
 do settings
 set (reads,updates,highest)=0
 if $increment(^run("ready"))
 lock ^go(ordinal)
 for b=1:1 quit:'$data(^limit(b))  if $increment(^claim(b))=1 do block(^limit(b-1)+1,^limit(b))
 tstart ():serial
 set ^reads=$get(^reads)+reads,^updates=$get(^updates)+updates
 set:highest>$get(^highest) ^highest=highest
 tcommit
 set ^run("finish",ordinal)=$$micros
 if $increment(^run("done"))
 halt
 ;
block(from,to) ; all sequences of one block; ends with the program that waits for it
 for n=from:1:to do walk(n)
 if $zsigproc(program,0) halt
 quit
 ;
walk(n) ; one sequence, as far as nobody has been there
 new key,m,p,path,steps
 set m=0
 for  set reads=reads+1,key=$$words(n) quit:$data(^step(key))!(n=1)  do
 . set path(m)=key,m=m+1
 . set n=$select(n#2:3*n+1,1:n\2)
 . set:n>highest highest=n
 quit:'m
 set steps=m
 set:n>1 steps=steps+$$number(^step(key))
 if unit="path" do together quit
 do result
 if hard for p=0:1:m-1 tstart ():serial  set ^step(path(p))=$$words(steps-p) tcommit
 if 'hard for p=0:1:m-1 set ^step(path(p))=$$words(steps-p)
 set updates=updates+m
 quit
 ;
result ; raises the longest sequence
 if hard tstart ():serial
 if 'hard tstart ():(serial:transactionid="BATCH")
 set:steps>$get(^result) ^result=steps
 tcommit
 quit
 ;
together ; the result and the whole path in one transaction
 if hard tstart ():serial
 if 'hard tstart ():(serial:transactionid="BATCH")
 set:steps>$get(^result) ^result=steps
 for p=0:1:m-1 set ^step(path(p))=$$words(steps-p)
 tcommit
 set updates=updates+m
 quit
 ;
words(n) ; a number as it is stored
 quit:plain n
 new p,text
 set text=word($zextract(n,1))
 for p=2:1:$zlength(n) set text=text_" "_word($zextract(n,p))
 quit text
 ;
number(text) ; a stored number
 quit:plain text
 new n,p
 set n=""
 for p=1:1:$zlength(text," ") set n=n_digit($zpiece(text," ",p))
 quit n
 ;
settings ; what the environment says, and the words for digits
 new p
 set plain=$ztrnlnm("threeen1_spelling")="digits",unit=$ztrnlnm("threeen1_unit")
 set hard=$ztrnlnm("threeen1_commit")="hard"
 set word=$ztrnlnm("threeen1_words")
 for p=0:1:9 set word(p)=$piece(word," ",p+1),digit(word(p))=p
 quit
 ;
micros() ; the time in microseconds
 new now
 set now=$zhorolog
 quit $piece(now,",",1)*86400+$piece(now,",",2)*1000000+$piece(now,",",3)
