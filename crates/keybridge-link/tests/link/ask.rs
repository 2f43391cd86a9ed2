//! Questions to scripted agents.

use keybridge_link::{GpgQuestions, QuestionError, ask_ssh_agent};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use crate::scripted::{End, Scripted, Then};

type Answers = Result<Vec<Result<Vec<String>, String>>, QuestionError>;

/// Asks two things of an agent.
fn asking(agent: &End) -> JoinHandle<Answers> {
    let agent = Scripted(agent.clone());
    spawn_local(async move {
        let mut questions = GpgQuestions::greeted(agent).await?;
        let mut answers = Vec::new();
        for command in ["GETINFO version", "KEYINFO --list"] {
            answers.push(questions.ask(command).await?);
        }
        Ok(answers)
    })
}

#[tokio::test]
async fn answers_are_read_however_they_are_split() {
    LocalSet::new()
        .run_until(async {
            let agent = End::new();
            let asking = asking(&agent);
            for part in [&b"O"[..], b"K Pleased to ", b"meet you\n# x\nD 2.4", b".7\n"] {
                agent.says(part).await;
            }
            assert_eq!(agent.got(), "GETINFO version\n");
            agent.says(b"OK\r\n\n").await;
            assert_eq!(agent.got(), "KEYINFO --list\n");
            agent.says(b"S KEYINFO a\nERR 67109115 Forbidden <GPG Agent>\n").await;
            let refused = "ERR 67109115 Forbidden <GPG Agent>".to_owned();
            let answers = asking.await.unwrap().unwrap();
            assert_eq!(answers, [Ok(vec!["D 2.4.7".to_owned()]), Err(refused)]);
        })
        .await;
}

#[tokio::test]
async fn what_is_no_answer_is_named() {
    LocalSet::new()
        .run_until(async {
            for (said, then, expected) in [
                (&b"ERR 1 busy\n"[..], Then::Nothing, "unexpected answer: ERR 1 busy"),
                (b"OK\nINQUIRE X\x1b\n", Then::Nothing, "unexpected answer: INQUIRE X\\u{1b}"),
                (b"SSH-2.0\n", Then::Nothing, "unexpected answer: SSH-2.0"),
                (&[b'x'; 2000], Then::Nothing, "the agent's answer has no end"),
                (b"OK\n", Then::CommentsForEver, "the agent's answer has no end"),
                (b"OK\nD 2", Then::End, "the agent hung up"),
            ] {
                let agent = End::new();
                agent.0.borrow_mut().then = then;
                let asking = asking(&agent);
                agent.says(said).await;
                assert_eq!(asking.await.unwrap().unwrap_err().to_string(), expected);
            }
        })
        .await;
}

#[tokio::test]
async fn the_frame_of_an_ssh_agent_is_read_to_its_end() {
    const REQUEST: [u8; 5] = [0, 0, 0, 1, 11];
    LocalSet::new()
        .run_until(async {
            let ask = |agent: &End| {
                let mut side = Scripted(agent.clone());
                spawn_local(async move { ask_ssh_agent(&mut side, &REQUEST).await })
            };
            let agent = End::new();
            agent.0.borrow_mut().room = 3;
            let asking = ask(&agent);
            agent.says(b"").await;
            agent.play(|script| script.room = 9).await;
            assert_eq!(agent.got_bytes(), REQUEST);
            for part in [&[0, 0][..], &[0, 5, 12, 0], &[0, 0, 0, 7]] {
                agent.says(part).await;
            }
            assert_eq!(asking.await.unwrap().unwrap(), [0, 0, 0, 5, 12, 0, 0, 0, 0]);
            let agent = End::new();
            let asking = ask(&agent);
            agent.says(&[0xff; 4]).await;
            assert!(matches!(asking.await.unwrap(), Err(QuestionError::Unexpected(_))));
            let agent = End::new();
            let asking = ask(&agent);
            agent.0.borrow_mut().then = Then::End;
            agent.says(&[0, 0, 0, 5, 12]).await;
            assert!(matches!(asking.await.unwrap(), Err(QuestionError::HungUp)));
        })
        .await;
}
